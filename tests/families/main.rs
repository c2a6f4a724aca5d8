//! One suite for every model family and every draft module: each case of the table in `cases.rs` passes the same tests,
//! `target.rs` for targets and `module.rs` for draft modules. Features of a single family are tested in a file with its
//! name.
//!
//! A new family needs a fixture under `tests/fixtures/checkpoints`, an entry in `cases.rs` and a line here. Reference values
//! come from independent programs (see the README of the fixtures).

#![allow(unreachable_pub, clippy::unwrap_used)] // a test that cannot go on should stop

#[path = "../common/mod.rs"]
mod common;

mod block;
mod block_confidence;
mod block_path;
mod block_sampling;
mod case;
mod cases;
mod clusters;
mod decode;
mod deepseek;
mod dense;
mod eagle3;
mod experts;
mod gemma3;
mod gemma4;
mod gguf;
mod gpu_form;
mod llama;
mod mimo;
mod module;
mod pard;
mod qwen35;
mod spoil;
mod support;
mod target;

macro_rules! battery {
    (target $case:path) => {
        battery! { target $case: logits rows rollback fork bounds speculation memory backend texts refused }
    };
    (on_candle $case:path) => {
        battery! { target $case: logits rows rollback fork bounds speculation memory texts refused }
    };
    (module $case:path) => {
        battery! {
            module $case: oracle conventions commits speculation second_prompt trimmed wrong_rows memory fork left_out
        }
    };
    (gpu_logits $case:path) => {
        battery! { gpu_form $case: logits fork memory batched best }
    };
    (gpu_form $case:path) => {
        battery! { gpu_form $case: logits rows rollback fork speculation memory batched best modules }
    };
    ($battery:ident $case:path: $($test:ident)+) => {
        $(
            #[test]
            fn $test() {
                crate::$battery::$test(&$case);
            }
        )+
    };
}

macro_rules! conformance {
    ($($name:ident: $case:ident is $($battery:ident)&+;)+) => {
        $(mod $name { $(mod $battery { battery! { $battery crate::cases::$case } })+ })+
    };
}

mod conformance {
    conformance! {
        llama: LLAMA is target;
        llama_gguf: LLAMA_GGUF is target;
        qwen3: QWEN3 is target;
        qwen3_fp8: QWEN3_FP8 is target;
        qwen3_gguf: QWEN3_GGUF is target;
        mixed_gguf: MIXED_GGUF is target;
        mimo: MIMO is target & module;
        qwen35: QWEN35 is target & module;
        qwen35_gguf: QWEN35_GGUF is target & module;
        qwen35moe: QWEN35_MOE is target & module;
        qwen35moe_gguf: QWEN35_MOE_GGUF is target;
        qwen3next: QWEN3_NEXT is target;
        qwen3next_gguf: QWEN3_NEXT_GGUF is target;
        deepseek: DEEPSEEK is target & module;
        deepseek_fp8: DEEPSEEK_FP8 is target & module;
        glm4_flash: GLM4_FLASH is target & module;
        gemma3: GEMMA3 is target;
        gemma3_gguf: GEMMA3_GGUF is target;
        gemma4: GEMMA4 is target & module;
        gemma4_on_candle: GEMMA4_ON_CANDLE is on_candle;
        gemma4_gguf: GEMMA4_GGUF is target & module;
        gemma4_gguf_on_candle: GEMMA4_GGUF_ON_CANDLE is on_candle;
        gemma4_unified: GEMMA4_UNIFIED is target & module;
        gemma4_unified_on_candle: GEMMA4_UNIFIED_ON_CANDLE is on_candle;
        gemma4_experts: GEMMA4_EXPERTS is target & module;
        gemma4_experts_on_candle: GEMMA4_EXPERTS_ON_CANDLE is on_candle;
        gemma4_experts_gguf: GEMMA4_EXPERTS_GGUF is target & module;
        gemma4_experts_gguf_on_candle: GEMMA4_EXPERTS_GGUF_ON_CANDLE is on_candle;
        qwen3moe: QWEN3_MOE is target;
        qwen3moe_gguf: QWEN3_MOE_GGUF is target;
        deepseek2_gguf: DEEPSEEK2_GGUF is target;
        deepseek2_lite_gguf: DEEPSEEK2_LITE_GGUF is target;
        glm4_flash_gguf: GLM4_FLASH_GGUF is target & module;
        glm4moe: GLM4_MOE is target & module;
        glm4moe_gguf: GLM4_MOE_GGUF is target & module;
        olmo2: OLMO2 is target;
        olmo2_gguf: OLMO2_GGUF is target;
        olmo3: OLMO3 is target;
        olmo3_gguf: OLMO3_GGUF is target;
        granite: GRANITE is target;
        granite_gguf: GRANITE_GGUF is target;
        granite_hybrid: GRANITE_HYBRID is target;
        phi3: PHI3 is target;
        phi3_gguf: PHI3_GGUF is target;
        smollm3: SMOLLM3 is target;
        smollm3_gguf: SMOLLM3_GGUF is target;
        mistral: MISTRAL is target;
        ministral3: MINISTRAL3 is target;
        ministral3_gguf: MINISTRAL3_GGUF is target;
        eagle3_original: EAGLE3_ORIGINAL is target & module;
        eagle3_normed: EAGLE3_NORMED is module;
        eagle3_speculators: EAGLE3_SPECULATORS is module;
        llama_on_gpu: LLAMA_ON_GPU is gpu_form;
        mimo_on_gpu: MIMO_ON_GPU is gpu_form;
        qwen35_on_gpu: QWEN35_ON_GPU is gpu_form;
        deepseek_on_gpu: DEEPSEEK_ON_GPU is gpu_form;
        gemma3_on_gpu: GEMMA3_ON_GPU is gpu_form;
        gemma4_candle_on_gpu: GEMMA4_CANDLE_ON_GPU is gpu_logits;
        qwen3moe_on_gpu: QWEN3_MOE_ON_GPU is gpu_form;
        glm4moe_on_gpu: GLM4_MOE_ON_GPU is gpu_form;
        eagle3_on_gpu: EAGLE3_ON_GPU is gpu_form;
    }
}
