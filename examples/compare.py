"""Three presses beside the full cache, as one would in a notebook: a run of the harness as a data frame."""

from tempfile import TemporaryDirectory

from echokv.harness import evaluate

with TemporaryDirectory() as results:  # give a folder of your own to keep the answers, and to go on with them
    frame = evaluate(
        "model=smollm2",
        "method=[full,streamingllm,snapkv,echokv]",
        "budget=128",
        "preset=equal_bytes",
        "subset=syn_fact",
        "limit=2",
        f"results={results}",
    )
table = frame.groupby("method", sort=False)[["score", "bytes"]].mean().reset_index()
table["bytes"] /= 1e6
print(table.rename(columns={"score": "mean score of 2", "bytes": "mean MB kept"}).round(1).to_string(index=False))
