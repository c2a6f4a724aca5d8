//! Fixtures on the GPU backend, and greedy decoding.

use std::time::Duration;

use draftscope::engine::speculate::decoder::Decoder;
use draftscope::engine::speculate::drafter::Drafter;
use draftscope::model::Model;
use draftscope::model::load::{Loaded, load};
use draftscope::model::options::{Backend, DeviceChoice, Dtype, LoadOptions};
use draftscope::protocol::{DrafterKind, Drafting, Settings, TokenId};

use super::checkpoint::{path, recipe};

/// Options of a fixture on the first adapter; `None` if there is none.
pub fn options(name: &str) -> Option<LoadOptions> {
    let options = on_cpu(name);
    let options =
        LoadOptions { device: DeviceChoice::Gpu, adapter: Some("0".to_owned()), backend: Backend::Auto, ..options };
    match draftscope::model::gpu::adapters() {
        all if all.is_empty() => {
            assert!(std::env::var("DRAFTSCOPE_GPU_TESTS").is_err(), "DRAFTSCOPE_GPU_TESTS is set and no adapter found");
            println!("not run: no Vulkan, Metal or DirectX 12 driver");
            None
        }
        _ => Some(options),
    }
}

pub fn on_cpu(name: &str) -> LoadOptions {
    LoadOptions { dtype: Dtype::Stored, ..recipe(path(name), Backend::Native) }
}

pub fn open(options: &LoadOptions) -> Loaded {
    load(options, &mut |_, _, _| {}).unwrap_or_else(|error| panic!("{}: {error}", options.target.display()))
}

/// Root of the mean square of the difference, relative to that of `b`.
pub fn apart(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let squares = |values: &mut dyn Iterator<Item = f32>| values.map(|x| x * x).sum::<f32>().sqrt();
    squares(&mut a.iter().zip(b).map(|(a, b)| a - b)) / squares(&mut b.iter().copied())
}

pub fn prompt(seed: u32, len: u32) -> Vec<TokenId> {
    (0..len).map(|i| TokenId((seed * 7919 + i * i * 31 + i * 17) % 250)).collect()
}

/// The next `len` tokens.
pub fn decode(
    target: &dyn Model,
    drafter: Box<dyn Drafter>,
    settings: &Settings,
    prompt: &[TokenId],
    len: usize,
) -> Vec<TokenId> {
    let mut decoder = Decoder::new(target.fork().unwrap(), drafter, settings);
    decoder.prefill(1, prompt).unwrap();
    while decoder.committed().len() < prompt.len() + len {
        decoder.round(&mut |_| Duration::ZERO).unwrap();
    }
    decoder.committed()[prompt.len()..prompt.len() + len].to_vec()
}

pub fn settings(drafter: DrafterKind, draft_len: u8, tree: Option<u8>) -> Settings {
    Settings { drafter, draft_len, drafting: Drafting { tree, ..Drafting::default() }, ..Settings::default() }
}
