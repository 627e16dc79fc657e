"""The report: a folder of plain files that shows what the runs in a results folder found (`python -m eval.report`)."""
