"""Text as it is generated, sampled with a seed, read in another thread."""

from threading import Thread

from transformers import TextIteratorStreamer

import echokv

model, tokenizer = echokv.load_model("smollm2", dtype="float32")
story = "The lighthouse keeper wrote down every ship that passed, its flag and the hour. " * 20
messages = [{"role": "user", "content": story + "\nGo on with the story in three sentences."}]
held = echokv.compress(model, messages, echokv.EchoKV(workspace=256), 128, tokenizer=tokenizer)

streamer = TextIteratorStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True, timeout=60)
how = {"max_new_tokens": 60, "do_sample": True, "temperature": 0.7, "top_p": 0.9, "repetition_penalty": 1.1}
writer = Thread(target=held.generate, kwargs={**how, "seed": 7, "streamer": streamer})
writer.start()
for piece in streamer:
    print(piece, end="", flush=True)
writer.join()
print(f"\n({held.finished[0]})")
