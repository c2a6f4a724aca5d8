//! MiMo: its folder without the module, and its card.

use crate::case::relative;
use crate::cases::MIMO;
use crate::spoil::spoiled;
use crate::support::{Backend, Card, LogitRows, bare_options, open, path};

#[test]
fn a_card_lists_the_module_in_the_folder() {
    let card = Card::read(&path("mimo")).unwrap();
    assert!(card.to_string().contains("\ndrafter  a draft module of its own\n"), "{card}");
    let plain = Card::read(&path("qwen3")).unwrap().to_string();
    assert!(!plain.contains("drafter"), "{plain}");
    let name = MIMO.open(&MIMO.runs[0]).info.unwrap().name;
    assert!(name.ends_with("(its own module)"), "{name}");
}

#[test]
fn the_same_folder_without_a_module_is_a_qwen2() {
    let edits = "set model_type \"qwen2\"; set attention_bias null; set num_nextn_predict_layers null";
    let folder = spoiled("mimo", edits);
    let golden = MIMO.golden();
    let mut target = open(&bare_options(folder.path().into(), Backend::Candle)).target;
    let out = target.forward(&golden.tokens("tokens"), LogitRows::All).unwrap();
    assert!(relative(out.logits.as_slice(), &golden.numbers("logits")) < 2e-5);
}
