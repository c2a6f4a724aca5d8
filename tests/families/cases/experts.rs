//! Fixtures with experts, and Gemma 4's assistant as GGUF: see `experts.py` among the fixtures.

use super::{
    ASSISTANT, CANDLE_NEAR, Case, DEEPSEEK, Draft, EIGHT_BITS, Effect, FAR, GEMMA_ON_CANDLE, GEMMA4, GLM4_FLASH,
    HALVES, Limit, NATIVE, OWN, Oracle, QWEN3, REFERENCE, Run, Source, Tree,
};

/// As 26B-A4B: experts beside the dense layers. The assistant is a GGUF file.
pub const GEMMA4_EXPERTS: Case = Case {
    fixture: "gemma4-experts",
    golden: "gemma4-experts",
    runs: &[FAR],
    // a sliding layer with two heads of 16, and a full one with one of 32
    kv_bytes: 2 * 4 * (2 * 16 + 32),
    draft: Some(GGUF_ASSISTANT),
    spoiled: include_str!("../spoiled/gemma4-experts.txt"),
    ..GEMMA4
};

const GGUF_ASSISTANT: Draft = Draft {
    source: Source::Fixture("gemma4-experts-assistant.gguf"),
    oracle: Oracle { scored: 320, conventions: None, ..ASSISTANT.oracle },
    conventions: &[
        ("feed=pre-norm order=hidden-first pairing=own norm=one-plus", Effect::Any([1e-4; 2])),
        ("position=own position=constant recycle=pre-norm position=next", Effect::Any([1e-6; 2])),
        ("slot0=extra slot0=zeroed", Effect::Refused("no slot 0 of its own")),
    ],
    spoiled: "",
    ..ASSISTANT
};

pub const GEMMA4_EXPERTS_ON_CANDLE: Case = Case { runs: GEMMA_ON_CANDLE, draft: None, ..GEMMA4_EXPERTS };

/// As llama.cpp's converter writes it, in bf16.
pub const GEMMA4_EXPERTS_GGUF: Case = Case { fixture: "gemma4-experts.gguf", spoiled: "", ..GEMMA4_EXPERTS };

pub const GEMMA4_EXPERTS_GGUF_ON_CANDLE: Case = Case { runs: GEMMA_ON_CANDLE, draft: None, ..GEMMA4_EXPERTS_GGUF };

pub const QWEN3_MOE: Case = Case {
    fixture: "qwen3moe",
    golden: "qwen3moe",
    runs: &[CANDLE_NEAR, NATIVE],
    kv_bytes: 512,
    draft_model: None,
    spoiled: include_str!("../spoiled/qwen3moe.txt"),
    ..QWEN3
};

const QUANTISED: &[Run] = &[REFERENCE, Run { limit: Limit::relative(HALVES + EIGHT_BITS), greedy: false, ..NATIVE }];

/// Experts in Q4_0, Q5_0 and Q8_0.
pub const QWEN3_MOE_GGUF: Case =
    Case { fixture: "qwen3moe.gguf", golden: "qwen3moe.gguf", runs: QUANTISED, spoiled: "", ..QWEN3_MOE };

/// DeepSeek-V3's layout as GGUF: experts in four groups, YaRN, queries of low rank, quantised.
pub const DEEPSEEK2_GGUF: Case = Case {
    fixture: "deepseek2.gguf",
    golden: "deepseek2.gguf",
    runs: QUANTISED,
    drafts: &[1, 2, 3, 4, 5, 6],
    draft: None,
    spoiled: "",
    ..DEEPSEEK
};

/// As DeepSeek-V2-Lite: direct queries, experts by probabilities that are not normalised, two shared ones, no groups.
pub const DEEPSEEK2_LITE_GGUF: Case =
    Case { fixture: "deepseek2-lite.gguf", golden: "deepseek2-lite.gguf", ..DEEPSEEK2_GGUF };

/// GLM-4.7-Flash as GGUF, with its module.
pub const GLM4_FLASH_GGUF: Case = Case {
    fixture: "glm4-flash-native.gguf",
    golden: "glm4-flash-native.gguf",
    runs: DEEPSEEK.runs,
    kv_bytes: 4 * (32 + 8) * 2,
    draft: Some(Draft { oracle: Oracle { slots: None, ..OWN.oracle }, trimmed: Some(103), ..OWN }),
    spoiled: "",
    ..GLM4_FLASH
};

const GLM4_CONVENTIONS: &[(&str, Effect)] = &[
    OWN.conventions[0],
    ("recycle=pre-norm position=constant", Effect::Deeper(1e-6, 1e-4)),
    // attention depends on differences of positions only; the native backend rounds rotated keys to f16
    ("position=constant-next", Effect::Deeper(1e-4, 1e-4)),
    ("position=next", Effect::Near([1e-5, 1e-3])),
];

/// GLM-4.5: half of a head is rotated, biases, a dense layer first, a module with experts.
pub const GLM4_MOE: Case = Case {
    fixture: "glm4moe",
    golden: "glm4moe",
    runs: &[CANDLE_NEAR, NATIVE],
    kv_bytes: 512,
    draft: Some(Draft {
        kv_bytes: 256,
        trimmed: Some(103),
        tree: Tree::Rounds(210),
        conventions: GLM4_CONVENTIONS,
        spoiled: include_str!("../spoiled/glm4moe.module.txt"),
        ..OWN
    }),
    spoiled: include_str!("../spoiled/glm4moe.txt"),
    ..GLM4_FLASH
};

pub const GLM4_MOE_GGUF: Case = Case {
    fixture: "glm4moe.gguf",
    draft: Some(Draft { kv_bytes: 256, trimmed: Some(103), conventions: GLM4_CONVENTIONS, ..OWN }),
    spoiled: "",
    ..GLM4_MOE
};
