"""One document, read and evicted from once, and several questions that share what was kept."""

import echokv
from baselines.snapkv import SnapKV

model, tokenizer = echokv.load_model("smollm2", dtype="float32")
filler = "The harbour was quiet and the boats lay still under a grey sky, as on every day of that week. "
facts = ["The secret pass code of Alice is 48213. ", "The ferry to the island leaves at noon. "]
document = filler * 15 + facts[0] + filler * 15 + facts[1] + filler * 5
questions = ["What is the secret pass code of Alice?", "When does the ferry to the island leave?"]

# The chat template around a text, cut where the question will stand.
turn = [{"role": "user", "content": f"{document}\n\n<question>"}]
context, behind = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True).split("<question>")
for budget in (len(tokenizer(context).input_ids), 256):
    held = echokv.compress(model, context, SnapKV(), budget, tokenizer=tokenizer)
    print(f"{budget} tokens kept, {held.bytes / 1e6:.1f} MB")
    for question in questions:
        print(f"  {question} {held.ask(question + behind, max_new_tokens=24)}")
