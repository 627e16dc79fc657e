"""One document, read and evicted from once, and several questions that share what was kept."""

import echokv
from echokv.baselines.full import FullKV
from echokv.baselines.snapkv import SnapKV

model, tokenizer = echokv.load_model("smollm2", dtype="float32")
filler = "The harbour was quiet and the boats lay still under a grey sky. "
facts = ["The secret pass code of Alice is 48213. ", "The capital of Zubrowka is Lutz. "]
document = filler * 8 + facts[0] + filler * 8 + facts[1] + filler * 4
questions = ["What is the secret pass code of Alice?", "What is the capital of Zubrowka?"]

# The chat template around a text, cut where the question will stand.
turn = [{"role": "user", "content": f"{document}\n\n<question>"}]
context, behind = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True).split("<question>")
for press, budget in ((FullKV(), None), (SnapKV(), 256), (echokv.EchoKV(workspace=512), 256)):
    held = echokv.compress(model, context, press, budget, tokenizer=tokenizer)
    print(f"{type(press).__name__}, {held.bytes / 1e6:.1f} MB")
    for question in questions:
        print(f"  {question} {held.ask(question + behind, max_new_tokens=24)}")
