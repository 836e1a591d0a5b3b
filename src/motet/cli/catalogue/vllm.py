"""Sampling by a vLLM server: E-VLLM."""

from __future__ import annotations

from typing import Final

from motet.cli.catalogue.entry import Entry

ENTRIES: Final = {
    "E-VLLM-01": Entry(
        "vLLM server does not answer",
        "Nothing answered at node.generation.url, or not within node.generation.timeout_s.",
        "The server is not running, still loading, busy, or behind another address. Lost connections are tried again "
        "three times; a time limit is not, since the server would only have more to do. Proxies are not used.",
        "Start the server, check the address, or raise node.generation.timeout_s.",
    ),
    "E-VLLM-02": Entry(
        "no vLLM server, or too old",
        "What answers at node.generation.url is not vLLM 0.10.2 or newer.",
        "Token ids beside the text, and log-probs of the distribution that was sampled, are there from then on.",
        "Check the address, or update the server.",
    ),
    "E-VLLM-03": Entry(
        "server's model does not fit the run",
        "The vLLM server serves no model, or its --max-model-len is below prompt and completion together.",
        "Completions would be cut where the run does not say so.",
        "Start it with the node's model and a larger --max-model-len, or lower rollout.max_new_tokens.",
    ),
    "E-VLLM-04": Entry(
        "answer of a vLLM server is not what was asked for",
        "Ids or log-probs are missing, an id is beyond the vocabulary, an end token is left out, a completion was cut "
        "short, or the prompt was changed.",
        "The server has another model or tokenizer, limits of its own, or another --logprobs-mode. motet never guesses "
        "what is missing.",
        "Start it with the node's model, --generation-config vllm and --logprobs-mode processed_logprobs.",
    ),
    "E-VLLM-05": Entry(
        "sampler and learner disagree",
        "The log-probs of one completion at temperature 2 differ by more than 0.05 nats on average between the vLLM "
        "server and the learner.",
        "By default vLLM gives log-probs without the temperature. The same shows if it truncates its sampling, ignores "
        "an adapter, has other weights, or computes in a coarse number format.",
        "Start it with --logprobs-mode processed_logprobs, without quantisation, and with the node's model.",
    ),
    "E-VLLM-06": Entry(
        "vLLM server does not take new weights",
        "The server has no route for new weights, does not see the folder, or cannot serve this kind of adapter.",
        "Weights are reloaded only under VLLM_SERVER_DEV_MODE=1, adapters only under "
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True with --enable-lora. Of adapters it serves plain LoRA, and not on the "
        "output layer or the embedding.",
        'Start it with what the message names; make refresh_dir visible to both; or use engine = "hf".',
    ),
    "E-VLLM-07": Entry(
        "vLLM server fails",
        "The server answered with a fault of its own, three more times after the first, or its engine is dead.",
        "Mostly its memory ran out. Reloading also fails on versions whose reload_weights takes no weights_path.",
        "Read its log, start it anew, lower its --gpu-memory-utilization, or update it.",
    ),
    "E-VLLM-08": Entry(
        "vLLM server refuses a request",
        "The server answered with a status from 400 to 499; the message has its words.",
        "A wrong key, or settings of the server that this run does not fit.",
        "Set MOTET_VLLM_API_KEY to its --api-key, or change what it complains about.",
    ),
    "E-VLLM-09": Entry(
        "settings for vLLM are wrong",
        "node.generation.url is no address, or refresh_dir is missing or cannot be written.",
        "A server can follow the training only through a folder that both see.",
        "Give an address such as http://127.0.0.1:8000 and a folder that both can use.",
    ),
}
