"""Run TensorZero's embedded gateway of its Python package, on a port of its own choice, which is printed.

python tensorzero_embedded.py CONFIG
"""

import sys
import time

import openai
import tensorzero

client = tensorzero.patch_openai_client(openai.OpenAI(api_key="none"), config_file=sys.argv[1], async_setup=False)
print("listens at", client.base_url, flush=True)
while True:
    time.sleep(3600)
