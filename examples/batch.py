"""Prompts of unequal lengths, answered as one batch: each has its own evicted cache, and nothing is padded by hand."""

import echokv

model, tokenizer = echokv.load_model("smollm2", dtype="float32")
filler = "It rained on the hills and the river rose a little. "
subjects = {"France": 10, "Italy": 40, "Japan": 90}
prompts = [
    [{"role": "user", "content": filler * times + f"What is the capital of {country}? Answer in one sentence."}]
    for country, times in subjects.items()
]
held = echokv.compress(model, prompts, echokv.EchoKV(workspace=256), 128, tokenizer=tokenizer)
for ids, answer in zip(held.ids, held.reply(max_new_tokens=24), strict=True):
    print(f"{len(ids):5} tokens: {answer}")
