//! The table: one entry for each fixture.

mod dense;
mod experts;
mod gpu_form;

pub use dense::*;
pub use experts::*;
pub use gpu_form::*;

use crate::case::{Case, Draft, Effect, Limit, Oracle, Run, Source, Tree};
use crate::support::{Backend, Rollback};

/// Keys and values are stored as f16 (2⁻¹¹), two of each in sequence.
const HALVES: f64 = 4.0 / 2048.0;
/// Matrices in sequence: four in each of two layers, and the head.
const DEEP: f64 = 9.0;
/// FP8 is loaded as bf16: off by at most 2⁻⁹, in the root mean square by 2⁻⁹/√3.
const ROUNDED: f64 = DEEP / 512.0 / 1.733;
/// Activations are multiplied as integers up to 127 in blocks of 32, whose largest is 2.4 times the root mean square of 32
/// normal numbers; the rounding error is 1/√12 of a step.
const EIGHT_BITS: f64 = DEEP * 2.4 / 127.0 / 3.465;

/// Both sides compute in f32 (2⁻²⁴) with sums of a few hundred terms.
const CANDLE: Run = Run {
    backend: Backend::Candle,
    rollback: Rollback::Snapshots,
    form: None,
    limit: Limit::relative(2e-5),
    greedy: true,
    rows: 1e-4,
    module: [Limit { largest: 1e-3, relative: 2e-5 }, Limit::relative(2e-5)],
    drafts: 1e-4,
};
/// Targets on the reference: rows have the bits of single rows.
const REFERENCE: Run = Run { rows: 0.0, ..CANDLE };
const NATIVE: Run = Run {
    backend: Backend::Native,
    limit: Limit::relative(HALVES),
    rows: 0.0,
    module: [Limit::relative(6.0 / 2048.0); 2],
    drafts: 0.0,
    ..CANDLE
};
/// A module from files of its own runs on the kernels whatever its target runs on: weights as stored, keys and values as halves.
const BESIDE_CANDLE: Run = Run { module: [Limit::relative(6.0 / 2048.0); 2], ..CANDLE };
const NEAR: Limit = Limit::largest(1e-4);
const CANDLE_NEAR: Run = Run { limit: NEAR, module: [NEAR; 2], ..REFERENCE };
const NATIVE_NEAR: Run = Run { limit: NEAR, module: [NEAR; 2], ..NATIVE };
const GGUF_RUNS: &[Run] = &[REFERENCE, Run { limit: Limit::relative(HALVES + EIGHT_BITS), greedy: false, ..NATIVE }];

pub const LLAMA: Case = Case {
    fixture: "llama",
    golden: "llama",
    runs: &[REFERENCE, NATIVE],
    ends: &["<|end_of_text|>", "<|eot_id|>"],
    begins: true,
    recurrent: false,
    window: None,
    soft_cap: None,
    kv_bytes: 1024,
    draft_model: Some("llama"),
    drafts: &[1, 2, 3, 4, 5, 6],
    draft: None,
    spoiled: include_str!("spoiled/llama.txt"),
};

pub const LLAMA_GGUF: Case =
    Case { fixture: "llama.gguf", golden: "llama.gguf", runs: GGUF_RUNS, kv_bytes: 2048, spoiled: "", ..LLAMA };

pub const QWEN3: Case = Case {
    fixture: "qwen3",
    golden: "qwen3",
    ends: &["<|endoftext|>", "<|im_end|>"],
    begins: false,
    draft_model: Some("qwen3"),
    spoiled: include_str!("spoiled/qwen3.txt"),
    ..LLAMA
};

pub const QWEN3_FP8: Case = Case {
    fixture: "qwen3-fp8",
    golden: "qwen3-fp8",
    runs: &[REFERENCE, Run { limit: Limit::relative(HALVES + ROUNDED), greedy: false, ..NATIVE }],
    spoiled: include_str!("spoiled/qwen3-fp8.txt"),
    ..QWEN3
};

pub const QWEN3_GGUF: Case =
    Case { fixture: "qwen3.gguf", golden: "qwen3.gguf", runs: GGUF_RUNS, kv_bytes: 2048, spoiled: "", ..QWEN3 };

/// Many types in one file, those of tables of values among them.
pub const MIXED_GGUF: Case =
    Case { fixture: "mixed.gguf", golden: "mixed.gguf", kv_bytes: 256, draft_model: Some("mixed.gguf"), ..QWEN3_GGUF };

/// A module in the target's files.
const OWN: Draft = Draft {
    source: Source::Target(1),
    vocab: 320,
    kv_bytes: 4 * (32 + 8),
    oracle: Oracle {
        slots: Some("mtp."),
        depths: "mtp#.deeper",
        drafts: Some("mtp#.drafts"),
        conventions: None,
        scored: 320,
        answer: false,
    },
    conventions: &[
        ("feed=pre-norm order=hidden-first pairing=own slot0=zeroed slot0=extra norm=one-plus", Effect::First(1e-3)),
        ("recycle=pre-norm position=constant position=constant-next", Effect::Deeper(1e-6, 1e-4)),
        ("position=next", Effect::Near([1e-5; 2])),
    ],
    rounds: 210 * 3 / 4,
    tree: Tree::Rounds(210),
    trimmed: Some(101),
    spoiled: "",
};

pub const MIMO: Case = Case {
    fixture: "mimo",
    golden: "mimo",
    runs: &[REFERENCE, Run { limit: Limit::relative(6.0 / 2048.0), ..NATIVE }],
    draft_model: None,
    drafts: &[3],
    kv_bytes: 512,
    draft: Some(Draft {
        kv_bytes: 256,
        oracle: Oracle { depths: "mtp.deeper", drafts: Some("mtp.drafts"), ..OWN.oracle },
        conventions: &[
            (
                "feed=post-norm order=embedding-first pairing=own slot0=plain slot0=extra norm=one-plus",
                Effect::Any([0.0; 2]),
            ),
            ("recycle=pre-norm position=constant position=constant-next", Effect::Deeper(1e-4, 0.0)),
            // attention depends on differences of positions only; the native backend rounds rotated keys to f16
            ("position=next", Effect::Near([1e-5, 1e-3])),
        ],
        trimmed: None,
        spoiled: include_str!("spoiled/mimo.module.txt"),
        ..OWN
    }),
    spoiled: include_str!("spoiled/mimo.txt"),
    ..QWEN3
};

const QWEN35_DRAFT: Draft = Draft {
    kv_bytes: 256,
    oracle: Oracle { slots: None, depths: "mtp.made", drafts: None, conventions: Some(("mtp.", 1e-4)), ..OWN.oracle },
    conventions: &[
        ("feed=pre-norm recycle=pre-norm order=hidden-first pairing=own", Effect::Any([1e-4; 2])),
        ("position=constant position=constant-next slot0=zeroed slot0=extra", Effect::Any([1e-4; 2])),
        ("norm=weight norm=one-plus", Effect::Any([1e-4; 2])),
        // attention depends on differences of positions only; the native backend rounds rotated keys to f16
        ("position=next", Effect::Near([1e-4, 4e-3])),
    ],
    rounds: usize::MAX,
    tree: Tree::Refused,
    trimmed: Some(102),
    spoiled: include_str!("spoiled/qwen35.module.txt"),
    ..OWN
};

pub const QWEN35: Case = Case {
    fixture: "qwen35",
    golden: "qwen35",
    runs: &[CANDLE_NEAR, NATIVE],
    recurrent: true,
    kv_bytes: 256,
    draft_model: None,
    draft: Some(QWEN35_DRAFT),
    spoiled: include_str!("spoiled/qwen35.txt"),
    ..QWEN3
};

pub const QWEN35_GGUF: Case = Case {
    fixture: "qwen35.gguf",
    runs: &[Run { rollback: Rollback::Replay, ..CANDLE_NEAR }, Run { rollback: Rollback::Replay, ..NATIVE }],
    draft: Some(Draft { spoiled: "", ..QWEN35_DRAFT }),
    spoiled: "",
    ..QWEN35
};

pub const QWEN35_MOE: Case = Case {
    fixture: "qwen35moe",
    golden: "qwen35moe",
    draft: Some(Draft { spoiled: include_str!("spoiled/qwen35moe.module.txt"), ..QWEN35_DRAFT }),
    spoiled: include_str!("spoiled/qwen35moe.txt"),
    ..QWEN35
};

/// Experts in three types. The module's values are those of `QWEN35_MOE`, whose weights are not rounded.
pub const QWEN35_MOE_GGUF: Case = Case {
    fixture: "qwen35moe.gguf",
    golden: "qwen35moe.gguf",
    runs: &[
        Run { rollback: Rollback::Replay, ..CANDLE_NEAR },
        Run { rollback: Rollback::Replay, limit: Limit::relative(HALVES + EIGHT_BITS), greedy: false, ..NATIVE },
    ],
    draft: None,
    spoiled: "",
    ..QWEN35_MOE
};

pub const QWEN3_NEXT: Case = Case {
    fixture: "qwen3next",
    golden: "qwen3next",
    draft: Some(Draft { oracle: Oracle { conventions: None, ..QWEN35_DRAFT.oracle }, spoiled: "", ..QWEN35_DRAFT }),
    spoiled: include_str!("spoiled/qwen3next.txt"),
    ..QWEN35
};

/// As llama.cpp's converter writes it, in bf16.
pub const QWEN3_NEXT_GGUF: Case = Case { fixture: "qwen3next.gguf", runs: QWEN35_GGUF.runs, spoiled: "", ..QWEN3_NEXT };

pub const DEEPSEEK: Case = Case {
    fixture: "deepseek",
    golden: "deepseek",
    runs: &[CANDLE_NEAR, Run { drafts: 1e-4, ..NATIVE_NEAR }],
    ends: &["<｜end▁of▁sentence｜>"],
    // 32 of the latent and 8 rotated for each of two layers, and of three modules
    kv_bytes: 4 * (32 + 8) * 2,
    draft_model: None,
    drafts: &[1, 3, 5],
    draft: Some(Draft {
        source: Source::Target(3),
        kv_bytes: 4 * (32 + 8) * 3,
        spoiled: include_str!("spoiled/deepseek.module.txt"),
        ..OWN
    }),
    spoiled: include_str!("spoiled/deepseek.txt"),
    ..LLAMA
};

pub const DEEPSEEK_FP8: Case = Case {
    fixture: "deepseek-fp8",
    golden: "deepseek-fp8",
    runs: &[
        CANDLE_NEAR,
        Run { limit: Limit::relative(0.05), module: [Limit::NONE; 2], greedy: false, drafts: 1e-4, ..NATIVE },
    ],
    ends: QWEN3.ends,
    begins: false,
    draft: Some(Draft { trimmed: Some(102), spoiled: include_str!("spoiled/deepseek-fp8.module.txt"), ..OWN }),
    spoiled: include_str!("spoiled/deepseek-fp8.txt"),
    ..DEEPSEEK
};

pub const GLM4_FLASH: Case = Case {
    fixture: "glm4-flash",
    golden: "glm4-flash",
    runs: &[CANDLE_NEAR],
    ends: &["<|endoftext|>", "<|user|>", "<|observation|>"],
    begins: false,
    kv_bytes: 576,
    draft: Some(Draft {
        kv_bytes: 192,
        trimmed: Some(103),
        spoiled: include_str!("spoiled/glm4-flash.module.txt"),
        ..OWN
    }),
    spoiled: include_str!("spoiled/glm4-flash.txt"),
    ..DEEPSEEK
};

const GEMMA: Limit = Limit::largest(5e-4);
const ASSISTANT: Draft = Draft {
    source: Source::Fixture("gemma4-assistant"),
    vocab: 320,
    kv_bytes: 0,
    oracle: Oracle {
        slots: None,
        depths: "logits.made",
        drafts: None,
        // scores are not scaled, so a rounding error between almost equal keys grows
        conventions: Some(("logits.", 5e-3)),
        scored: 4 * 20, // four clusters
        answer: true,
    },
    conventions: &[
        (
            "feed=pre-norm order=hidden-first pairing=own position=own position=constant norm=one-plus",
            Effect::First(1e-2),
        ),
        ("recycle=pre-norm position=next", Effect::Deeper(0.0, 1e-2)),
        ("slot0=extra slot0=zeroed", Effect::Refused("no slot 0 of its own")),
    ],
    rounds: 210 * 3 / 4,
    tree: Tree::Rounds(210 / 2),
    trimmed: Some(100),
    spoiled: include_str!("spoiled/gemma4-assistant.txt"),
};

pub const GEMMA3: Case = Case {
    fixture: "gemma3",
    golden: "gemma3",
    ends: &["<eos>", "<end_of_turn>"],
    window: Some(8),
    kv_bytes: 2 * 4 * 6 * 32,
    draft_model: Some("gemma3"),
    spoiled: include_str!("spoiled/gemma3.txt"),
    ..LLAMA
};

pub const GEMMA3_GGUF: Case = Case {
    fixture: "gemma3.gguf",
    golden: "gemma3.gguf",
    runs: GGUF_RUNS,
    kv_bytes: 2 * 4 * 7 * 32,
    draft_model: Some("gemma3.gguf"),
    spoiled: "",
    ..GEMMA3
};

/// Scores are not scaled, so the rounding of keys and values to halves grows: with it, the logits of `transformers` change by
/// 0.0049, and so may texts. Drafts come from such a state, attend to such keys, and follow each other.
const FAR: Run = Run { limit: Limit::relative(1.5 * 0.0049), module: [Limit::relative(0.02); 2], ..NATIVE };

pub const GEMMA4: Case = Case {
    fixture: "gemma4",
    golden: "gemma4",
    runs: &[Run { greedy: false, ..FAR }],
    ends: &["<eos>", "<turn|>"],
    window: Some(8),
    soft_cap: Some(30.0),
    // three sliding layers with two heads of 16, and a full one with two of 32
    kv_bytes: 2 * 4 * (3 * 2 * 16 + 2 * 32),
    draft_model: None,
    drafts: &[3],
    draft: Some(ASSISTANT),
    spoiled: include_str!("spoiled/gemma4.txt"),
    ..LLAMA
};

/// Assistants do not run there.
const GEMMA_ON_CANDLE: &[Run] = &[Run { limit: GEMMA, ..REFERENCE }];

pub const GEMMA4_ON_CANDLE: Case = Case { runs: GEMMA_ON_CANDLE, draft: None, ..GEMMA4 };

/// As llama.cpp's converter writes it, in bf16.
pub const GEMMA4_GGUF: Case =
    Case { fixture: "gemma4.gguf", draft: Some(Draft { spoiled: "", ..ASSISTANT }), spoiled: "", ..GEMMA4 };

pub const GEMMA4_GGUF_ON_CANDLE: Case = Case { runs: GEMMA_ON_CANDLE, draft: None, ..GEMMA4_GGUF };

pub const GEMMA4_UNIFIED: Case = Case {
    fixture: "gemma4-unified",
    golden: "gemma4-unified",
    runs: &[FAR],
    kv_bytes: 2 * 4 * (3 * 2 * 16 + 32),
    draft: Some(Draft {
        source: Source::Fixture("gemma4-unified-assistant"),
        oracle: Oracle { scored: 320, ..ASSISTANT.oracle },
        spoiled: "",
        ..ASSISTANT
    }),
    spoiled: "",
    ..GEMMA4
};

pub const GEMMA4_UNIFIED_ON_CANDLE: Case = Case { runs: GEMMA_ON_CANDLE, draft: None, ..GEMMA4_UNIFIED };

/// The error of a head of 4-bit codes is 1/√12 of a fifteenth of a block's range, 8 % of its weights; these weights were
/// solved for, so products cancel and the error doubles.
const HEAD_RUNS: &[Run] =
    &[BESIDE_CANDLE, Run { greedy: false, module: [Limit::relative(0.25), Limit::relative(0.03)], ..NATIVE }];
const fn head_conventions(near: f32) -> [(&'static str, Effect); 2] {
    let changes = "recycle=post-norm recycle=pre-norm order=hidden-first pairing=own position=constant \
                   position=constant-next slot0=zeroed slot0=extra norm=one-plus";
    // attention depends on differences of positions only; rotated keys are rounded to f16
    [(changes, Effect::Any([1e-4, 1e-3])), ("position=next", Effect::Near([near; 2]))]
}

const HEAD: Draft = Draft {
    source: Source::Fixture("eagle3-original"),
    vocab: 200,
    kv_bytes: 256,
    oracle: Oracle { slots: Some(""), depths: "deeper", drafts: Some("drafts"), scored: 200, ..OWN.oracle },
    conventions: &head_conventions(1e-3),
    rounds: 200,
    tree: Tree::Rounds(210),
    trimmed: None,
    spoiled: include_str!("spoiled/eagle3-original.txt"),
};

pub const EAGLE3_ORIGINAL: Case = Case {
    fixture: "llama-deep",
    golden: "llama-deep",
    runs: HEAD_RUNS,
    kv_bytes: 1792,
    draft_model: None,
    drafts: &[3],
    draft: Some(HEAD),
    spoiled: "",
    ..LLAMA
};

pub const EAGLE3_NORMED: Case = Case {
    draft: Some(Draft {
        source: Source::Fixture("eagle3-normed"),
        kv_bytes: 512,
        conventions: &head_conventions(2e-2),
        spoiled: include_str!("spoiled/eagle3-normed.txt"),
        ..HEAD
    }),
    ..EAGLE3_ORIGINAL
};

pub const EAGLE3_SPECULATORS: Case = Case {
    runs: HEAD_RUNS,
    draft: Some(Draft {
        source: Source::Fixture("eagle3-speculators"),
        kv_bytes: 512,
        conventions: &head_conventions(2e-2),
        spoiled: include_str!("spoiled/eagle3-speculators.txt"),
        ..HEAD
    }),
    ..QWEN3
};
