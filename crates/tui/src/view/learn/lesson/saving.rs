//! Drawing: what the weights of the draft module take in BF16, in FP8 and as loaded, and what it shares with the target.
//!
//! Invariant: bytes as loaded are those of the header. The number of weights is calculated from them and from the bits
//! that a weight takes; what follows from it says "about".

use super::bytes::bits;
use crate::view::prelude::*;
use draftscope_learn::lesson::grouped;
use draftscope_protocol::{DrafterInfo, DrafterKind, Header};

/// Width of the labels and of the numbers after the bars.
const LABEL: usize = 16;
const NUMBER: usize = 14;

/// Bits of a row of the head that may be proposed because it is a token of the text: the native kernels copy it so.
const OF_TEXT: f64 = 8.5;

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let inner = framed(screen.panel(" What the draft module takes in memory "), area, frame);
    put(content(screen, inner.width), inner, frame);
}

/// All lines in so many columns.
pub(super) fn content(screen: Screen, width: u16) -> Vec<Line<'static>> {
    let found = screen.session.header().and_then(|header| Some((header, module(header)?)));
    match found {
        Some((header, module)) => drawn(screen, header, module, width),
        None => {
            let text = "The figures of the draft module stand here once a run has begun with one.";
            wrapped(text, width, screen.theme[Role::TextDim])
        }
    }
}

/// The drafter with weights of its own.
pub(super) fn module(header: &Header) -> Option<&DrafterInfo> {
    header
        .drafters
        .iter()
        .chain(&header.drafter)
        .find(|drafter| drafter.kind == DrafterKind::Mtp && drafter.weight_bytes > 0)
}

/// Bytes of the module as loaded, without its rows of the head.
fn own_bytes(header: &Header, module: &DrafterInfo) -> Option<f64> {
    let d = f64::from(header.model.d_model);
    let is_cut = module.draft_vocab < header.model.vocab;
    let rows = if is_cut { f64::from(module.draft_vocab) * d * bits(&module.dtype)? / 8.0 } else { 0.0 };
    let is_native = header.backend == "native";
    let of_text = if is_native { module.context_vocab as f64 * d * OF_TEXT / 8.0 } else { 0.0 };
    Some(module.weight_bytes as f64 - rows - of_text).filter(|bytes| *bytes > 0.0)
}

/// About how many weights the module has of its own; none where its dtype is not known.
pub(super) fn weights(header: &Header, module: &DrafterInfo) -> Option<f64> {
    Some(own_bytes(header, module)? * 8.0 / bits(&module.dtype)?)
}

fn drawn(screen: Screen, header: &Header, module: &DrafterInfo, width: u16) -> Vec<Line<'static>> {
    let line = |label: &str, share: f64, number: String| {
        let room = usize::from(width).saturating_sub(LABEL + NUMBER + 1);
        let mut spans = vec![Span::styled(fit(label, LABEL), screen.theme[Role::TextDim])];
        spans.extend(bar(share, room, screen.theme[Role::PlotBar], screen.theme[Role::PlotRest]));
        spans.push(Span::styled(format!(" {}", fit(&number, NUMBER)), screen.theme[Role::Text]));
        Line::from(spans)
    };
    let megabytes = |bytes: f64| format!("{:.1} MB", bytes / 1e6);
    let say = |text: &str, role| wrapped(text, width, screen.theme[role]);
    let mut lines = Vec::new();
    let sized = own_bytes(header, module).zip(weights(header, module));
    match sized {
        Some((own, weights)) => {
            let text = format!("projection and block: about {:.1} million weights", weights / 1e6);
            lines.extend(say(&text, Role::PanelTitle));
            let most = (2.0 * weights).max(own);
            lines.push(line("BF16, 2 bytes", 2.0 * weights / most, about(2.0 * weights)));
            lines.push(line("FP8, 1 byte", weights / most, about(weights)));
            lines.push(line(&format!("loaded: {}", module.dtype), own / most, megabytes(own)));
            let rows = module.weight_bytes as f64 - own;
            if rows > 0.0 {
                let besides = if module.context_vocab > 0 { " and those of the text" } else { "" };
                let text = format!(
                    "Its rows of the head ({} tokens{besides}): {}.",
                    grouped(module.draft_vocab.into()),
                    megabytes(rows)
                );
                lines.extend(say(&text, Role::Text));
            }
        }
        None => lines
            .extend(say(&format!("loaded: {} {}", megabytes(module.weight_bytes as f64), module.dtype), Role::Text)),
    }
    let table = f64::from(header.model.vocab) * f64::from(header.model.d_model) * 2.0;
    let text = format!(
        "A module that shares embedding and head does not store them again: an embedding of {} tokens × {} would take {} \
         in BF16, and a head of its own as much.",
        grouped(header.model.vocab.into()),
        header.model.d_model,
        megabytes(table)
    );
    lines.extend(say(&text, Role::TextDim));
    lines
}

/// A size that is calculated, with two digits: its bytes have a few vectors besides the weights that it is calculated from.
fn about(bytes: f64) -> String {
    let megabytes = bytes / 1e6;
    if megabytes < 9.95 { format!("about {megabytes:.1} MB") } else { format!("about {megabytes:.0} MB") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use draftscope_session::fixture::first_turn;

    #[test]
    fn the_weights_of_the_built_in_module_are_found_from_its_bytes() {
        // as the header of a run with the built-in module has them; its file lists 5,197,824 weights
        let mut head = draftscope_session::fixture::fold(&first_turn().events).header().unwrap().clone();
        (head.model.d_model, head.model.vocab, head.backend) = (576, 49_152, "native".to_owned());
        let module = DrafterInfo {
            dtype: "q4_1".to_owned(),
            weight_bytes: 5_349_888,
            draft_vocab: 4096,
            context_vocab: 1024,
            block: 0,
            vocab_method: None,
            ..DrafterInfo::weightless(draftscope_protocol::DrafterKind::Mtp, 4096)
        };
        assert_eq!(weights(&head, &module), Some(5_197_824.0));
        // with its norms: the sizes are those that the lesson names
        let with_norms = DrafterInfo { weight_bytes: 5_368_320, ..module.clone() };
        for module in [&module, &with_norms] {
            let sizes = weights(&head, module).map(|weights| [about(weights), about(2.0 * weights)]);
            assert_eq!(sizes, Some(["about 5.2 MB".to_owned(), "about 10 MB".to_owned()]));
        }
        assert_eq!(weights(&head, &DrafterInfo { dtype: "unknown".to_owned(), ..module }), None);
    }
}
