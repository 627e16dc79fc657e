"""Three presses on one prompt, as one would in a notebook: one prefill, one batch, a data frame."""

import pandas as pd

import echokv
from baselines.snapkv import SnapKV
from baselines.streaming_llm import StreamingLLM

BUDGET = 128
model, tokenizer = echokv.load_model("smollm2", dtype="float32")
filler = "The grass is green and the sky is blue, and the sheep stand where they stood before. "
text = filler * 15 + "The secret pass code of Alice is 48213. " + filler * 15
turn = [{"role": "user", "content": text + "\nWhat is the secret pass code of Alice?"}]
presses = {"StreamingLLM": StreamingLLM(), "SnapKV": SnapKV(), "EchoKV": echokv.EchoKV(workspace=256)}

needs = echokv.Needs()
for press in presses.values():
    needs |= press.needs
ids = tokenizer.apply_chat_template(turn, add_generation_prompt=True)
filled = echokv.prefill(model, ids, needs, stop_ids=[tokenizer.eos_token_id])
kept = {name: press.select(filled, BUDGET) for name, press in presses.items()}
answers = echokv.decode_rows([echokv.Session(filled, selection) for selection in kept.values()], 24)
rows = [
    {
        "press": name,
        "kept MB": selection.bytes(filled) / 1e6,
        "answer": tokenizer.decode(answer, skip_special_tokens=True),
    }
    for (name, selection), answer in zip(kept.items(), answers, strict=True)
]
print(pd.DataFrame(rows).to_string(index=False))
