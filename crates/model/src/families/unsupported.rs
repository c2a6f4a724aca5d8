//! Names of known families that do not run, so that a message can say what a file is.

/// Their names and descriptions.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("qwen2moe", "a mixture of experts"),
    ("llama4", "Llama 4, a mixture of experts"),
    ("mixtral", "a mixture of experts"),
    ("gemma", "Gemma"),
    ("gemma2", "Gemma 2"),
    ("eagle3", "an EAGLE-3 head, which drafts for another model"),
    ("dflash", "a block drafter (DFlash, DFlash 2 or DSpark), which drafts for another model"),
    ("deepseek_v2", "DeepSeek-V2 (latent attention, experts chosen another way than V3's)"),
    ("deepseek32", "DeepSeek-V3.2 (sparse attention, experts)"),
    ("deepseek_v32", "DeepSeek-V3.2 (sparse attention, experts)"),
    ("deepseek4", "DeepSeek-V4"),
    ("deepseek_v4", "DeepSeek-V4"),
    ("glm_moe_dsa", "GLM-5 (sparse attention, experts)"),
    ("glm-dsa", "GLM-5 (sparse attention, experts)"),
    ("kimi_k2", "Kimi K2 in a folder (its GGUF files run)"),
    ("mimo2", "MiMo-V2, a mixture of experts"),
    ("mimo_v2_flash", "MiMo-V2, a mixture of experts"),
    ("step35", "Step-3.5, a mixture of experts"),
    ("gpt-oss", "gpt-oss, a mixture of experts"),
    ("gpt_oss", "gpt-oss, a mixture of experts"),
    ("nemotron_h", "Nemotron-H"),
    ("falcon", "Falcon"),
    ("gpt2", "GPT-2"),
    ("bert", "BERT, which continues no text"),
];

/// Description of the family of this name; `None` for an unknown name.
pub(super) fn what(name: &str) -> Option<&'static str> {
    UNSUPPORTED.iter().find(|(known, _)| *known == name).map(|(_, what)| *what)
}
