//! Families that are a plan: OLMo 2 and 3, Granite, Phi-3, SmolLM3, Mistral. Their GGUF files hold the same weights.

use super::{Case, GEMMA3, LLAMA, QWEN3};

/// Draft lengths for a file with the weights of another one.
const FEW: &[u8] = &[2, 5];

pub const OLMO2: Case = Case {
    fixture: "olmo2",
    golden: "olmo2",
    kv_bytes: 2 * 4 * 2 * 32,
    draft_model: Some("olmo2"),
    spoiled: include_str!("../spoiled/olmo2.txt"),
    ..LLAMA
};
pub const OLMO2_GGUF: Case = Case { fixture: "olmo2.gguf", drafts: FEW, spoiled: "", ..OLMO2 };

/// Three of four layers slide, and positions of the full one are stretched.
pub const OLMO3: Case = Case {
    fixture: "olmo3",
    golden: "olmo3",
    window: GEMMA3.window,
    kv_bytes: 2 * 4 * 4 * 32,
    draft_model: Some("olmo3"),
    spoiled: include_str!("../spoiled/olmo3.txt"),
    ..LLAMA
};
pub const OLMO3_GGUF: Case = Case { fixture: "olmo3.gguf", drafts: FEW, spoiled: "", ..OLMO3 };

pub const GRANITE: Case = Case {
    fixture: "granite",
    golden: "granite",
    kv_bytes: 2 * 4 * 2 * 32,
    draft_model: Some("granite"),
    spoiled: include_str!("../spoiled/granite.txt"),
    ..QWEN3
};
pub const GRANITE_GGUF: Case = Case { fixture: "granite.gguf", drafts: FEW, spoiled: "", ..GRANITE };
pub const GRANITE_HYBRID: Case = Case {
    fixture: "granite-hybrid",
    golden: "granite-hybrid",
    draft_model: Some("granite-hybrid"),
    drafts: FEW,
    spoiled: include_str!("../spoiled/granite-hybrid.txt"),
    ..GRANITE
};

/// With the factors of long contexts.
pub const PHI3: Case = Case {
    fixture: "phi3",
    golden: "phi3",
    kv_bytes: 2 * 4 * 2 * 32,
    draft_model: Some("phi3"),
    spoiled: include_str!("../spoiled/phi3.txt"),
    ..QWEN3
};
pub const PHI3_GGUF: Case = Case { fixture: "phi3.gguf", drafts: FEW, spoiled: "", ..PHI3 };

pub const SMOLLM3: Case = Case {
    fixture: "smollm3",
    golden: "smollm3",
    kv_bytes: 2 * 4 * 4 * 32,
    draft_model: Some("smollm3"),
    spoiled: include_str!("../spoiled/smollm3.txt"),
    ..LLAMA
};
pub const SMOLLM3_GGUF: Case = Case { fixture: "smollm3.gguf", drafts: FEW, spoiled: "", ..SMOLLM3 };

pub const MISTRAL: Case = Case {
    fixture: "mistral",
    golden: "mistral",
    window: GEMMA3.window,
    kv_bytes: 2 * 4 * 2 * 64,
    draft_model: Some("mistral"),
    spoiled: include_str!("../spoiled/mistral.txt"),
    ..LLAMA
};
pub const MINISTRAL3: Case = Case {
    fixture: "ministral3",
    golden: "ministral3",
    kv_bytes: 2 * 4 * 2 * 32,
    draft_model: Some("ministral3"),
    spoiled: "",
    ..LLAMA
};
pub const MINISTRAL3_GGUF: Case = Case { fixture: "ministral3.gguf", drafts: FEW, ..MINISTRAL3 };
