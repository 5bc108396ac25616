from typing import Any

version: str
has_models: bool

class Error(RuntimeError): ...
class UsageError(Error, ValueError): ...

class KvCache:
    def __init__(self, batch: int, kv_heads: int, head_dim: int, dtype: str) -> None: ...
    def append(self, k: Any, v: Any, bits: bool) -> None: ...
    def truncate(self, length: int) -> None: ...
    def reserve(self, keys: int) -> None: ...
    def length(self) -> int: ...
    def bytes(self) -> int: ...
    def copy_keys(self, out: Any) -> None: ...
    def copy_values(self, out: Any) -> None: ...

def slopes(heads: int, bias_max: float) -> list[float]: ...
def threads() -> int: ...
def set_threads(count: int) -> None: ...
def isa() -> str: ...
def has_cuda() -> bool: ...
def set_numpy(array: Any, float32: Any, float16: Any, int32: Any, uint16: Any, probe: Any) -> None: ...
def set_torch(tensor: Any, to_dlpack: Any) -> None: ...
def saved_words(batch: int, queries: int, heads: int, options: tuple[Any, ...]) -> int: ...
def attention(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    kernel_lse: Any,
    blocks: Any,
    options: tuple[Any, ...],
    bits: bool,
    stream: int | None = None,
) -> None: ...
def attention_backward(
    dout: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    kernel_lse: Any,
    blocks: Any,
    dq: Any,
    dk: Any,
    dv: Any,
    dslopes: Any,
    options: tuple[Any, ...],
    stream: int | None = None,
) -> None: ...
def attention_paged(
    q: Any,
    k_cache: Any,
    v_cache: Any,
    out: Any,
    lse: Any,
    options: tuple[Any, ...],
    block_table: Any,
    seqused_k: Any,
    leftpad_k: Any,
    bits: bool,
    operation: str,
) -> None: ...
def append_keys(
    k: Any, v: Any, cache_seqlens: Any, block_table: Any, k_cache: Any, v_cache: Any, bits: bool
) -> None: ...
def attention_positions(
    q: Any,
    k: Any,
    v: Any,
    positions_q: Any,
    positions_k: Any,
    out: Any,
    lse: Any,
    lse_low: Any,
    stops: Any,
    options: tuple[Any, ...],
    bits: bool,
) -> tuple[int, int]: ...
def attention_positions_backward(
    dout: Any,
    q: Any,
    k: Any,
    v: Any,
    positions_q: Any,
    positions_k: Any,
    out: Any,
    lse: Any,
    lse_low: Any,
    stops: Any,
    dq: Any,
    dk: Any,
    dv: Any,
    dslopes: Any,
    options: tuple[Any, ...],
) -> None: ...
def attention_decode(q: Any, cache: KvCache, out: Any, lse: Any, options: tuple[Any, ...], bits: bool) -> None: ...
def merge_attention(out_a: Any, lse_a: Any, out_b: Any, lse_b: Any, out: Any, lse: Any, bits: bool) -> None: ...

# What follows is there where has_models.

class Tokenizer:
    @staticmethod
    def load(path: str) -> Tokenizer: ...
    def kind(self) -> str: ...
    def vocab_size(self) -> int: ...
    def begin_of_text(self) -> int | None: ...
    def end_of_text(self) -> int: ...
    def encode(self, text: str, add_special_tokens: bool) -> list[int]: ...
    def encode_pair(self, first: str, second: str, add_special_tokens: bool) -> tuple[list[int], list[int]]: ...
    def decode(self, ids: Any, skip_special_tokens: bool) -> str: ...
    def save(self, folder: str) -> None: ...

class LanguageModel:
    @staticmethod
    def load(folder: str, precision: str, weights: str | None) -> LanguageModel: ...
    def save(self, folder: str) -> None: ...
    def describe(self) -> dict[str, Any]: ...
    def slopes(self) -> list[list[float]]: ...
    def weight_bytes(self) -> int: ...
    def encode(self, text: str) -> Any: ...
    def decode(self, ids: Any) -> str: ...
    def read(self, texts: list[str], field: str) -> tuple[Any, int]: ...
    def hidden(self, ids: Any) -> Any: ...
    def logits(self, ids: Any) -> Any: ...
    def generate_ids(self, ids: Any, max_tokens: int, temperature: float, seed: int) -> Any: ...
    def embed(self, texts: list[str], pooling: str, normalize: bool) -> Any: ...
    def score(self, ids: Any, context_length: int) -> Any: ...
    def evaluate(self, ids: Any, length: int, stride: int, on_progress: Any) -> dict[str, Any]: ...
    def generate(
        self,
        prompt: str,
        max_tokens: int,
        temperature: float,
        top_k: int,
        top_p: float,
        min_p: float,
        repetition_penalty: float,
        seed: int,
        stop_at_end_of_text: bool,
        stop: list[str],
        sample: int,
        on_text: Any,
    ) -> dict[str, Any]: ...

def loglikelihoods(
    model: LanguageModel, ids: Any, counts: list[int], targets: list[int], batch_tokens: int
) -> tuple[Any, Any]: ...

class SubmittedRequest:
    def next(self) -> tuple[int, str] | None: ...
    def result(self) -> dict[str, Any]: ...
    def cancel(self) -> None: ...

class Engine:
    def __init__(
        self,
        model: LanguageModel,
        slots: int,
        step_tokens: int,
        chunk_tokens: int,
        queue: int,
        max_tokens: int,
        prefix_bytes: int,
        memory: int | None,
        eviction_tolerance: float | None,
    ) -> None: ...
    def submit(
        self,
        ids: Any,
        samples: int,
        logprobs: int | None,
        prompt_logprobs: int | None,
        max_tokens: int,
        temperature: float,
        top_k: int,
        top_p: float,
        min_p: float,
        repetition_penalty: float,
        seed: int,
        stop_at_end_of_text: bool,
        stop: list[str],
    ) -> SubmittedRequest: ...
    def close(self) -> None: ...
    def stats(self) -> dict[str, Any]: ...

class EncoderModel:
    def __init__(self, model: LanguageModel) -> None: ...
    def labels(self) -> int: ...
    def encode(self, text: str, max_tokens: int) -> tuple[Any, Any]: ...
    def encode_pair(self, first: str, second: str, max_tokens: int) -> tuple[Any, Any]: ...
    def hidden(self, ids: Any, types: Any, counts: list[int]) -> Any: ...
    def embed_inputs(self, ids: Any, types: Any, counts: list[int], pooling: str, normalize: bool) -> Any: ...
    def logits(self, ids: Any, types: Any, counts: list[int]) -> Any: ...
    def embed(self, texts: list[str], pooling: str, normalize: bool, max_tokens: int) -> Any: ...
    def embed_spans(self, ids: Any, spans: list[tuple[int, int]], pooling: str, normalize: bool) -> Any: ...
    def rerank(self, query: str, documents: list[str], max_tokens: int) -> Any: ...

def train(
    texts: list[str],
    valid: list[str],
    field: str,
    tokenizer: dict[str, Any],
    from_model: str,
    preset: str,
    position: str,
    dropout: float | None,
    options: dict[str, Any],
    out: str,
    resume: bool,
    overwrite: bool,
    on_progress: Any,
) -> tuple[LanguageModel, dict[str, Any]]: ...
def compare(
    texts: list[str],
    valid: list[str],
    field: str,
    tokenizer: dict[str, Any],
    positions: list[str] | None,
    preset: str,
    dropout: float | None,
    seeds: int,
    train_lengths: list[int],
    lengths: list[int],
    stride: int,
    one_pass: bool,
    eval_tokens: int,
    sample_tokens: int,
    timing_rounds: int,
    tune_rates: list[float],
    options: dict[str, Any],
    out: str,
    overwrite: bool,
    on_progress: Any,
) -> dict[str, Any]: ...
