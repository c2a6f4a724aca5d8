//! The model by its names, and what target, drafter and caches take in memory.
//!
//! Invariant: sizes are those of the header, of its account where there is one; a cache's is its current positions × bytes
//! a position. Where height is short, the longest texts are cut first, so that every row keeps a line.

use crate::view::prelude::*;
use crate::widgets::cell::cut_lines;
use draftscope_protocol::{GpuInfo, Header, MemoryAccount, ModelInfo};
use draftscope_session::Answer;

/// Height with its frame in short.
pub(in crate::view) const SHORT: u16 = 2 + FRAME;

/// Width of the captions.
const LABEL: usize = 16;

pub(in crate::view) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let inner = framed(screen.panel(" Model and memory "), area, frame);
    let Some(header) = screen.session.header().filter(|_| !inner.is_empty()) else {
        return;
    };
    let is_short = inner.height + FRAME <= SHORT;
    let rows = if is_short { short(screen, header) } else { rows(screen, header) };
    put(lines(screen, rows, (inner.width, inner.height)), inner, frame);
}

/// Height that shows all of it, or as much as fits into `most`, with its frame.
pub(in crate::view) fn height(screen: Screen, width: u16, most: u16) -> u16 {
    let rows = screen.session.header().map(|header| rows(screen, header)).unwrap_or_default();
    let lines = lines(screen, rows, (width.saturating_sub(2), most.saturating_sub(FRAME)));
    (lines.len() as u16 + FRAME).min(most)
}

/// Rows in their lines. If they are more than `most`, the longest rows are cut, as far as each keeps a line.
fn lines(screen: Screen, rows: Vec<(&'static str, String)>, (width, most): (u16, u16)) -> Vec<Line<'static>> {
    let row = |(label, text): (&'static str, String)| {
        let parts = wrapped(&text, width.saturating_sub(LABEL as u16).max(1), screen.theme[Role::Text]);
        let lines = parts.into_iter().enumerate().map(|(index, part)| {
            let label = Span::styled(fit(if index == 0 { label } else { "" }, LABEL), screen.theme[Role::TextDim]);
            Line::from_iter(std::iter::once(label).chain(part.spans))
        });
        lines.collect::<Vec<_>>()
    };
    let rows: Vec<_> = rows.into_iter().map(row).collect();
    let mut heights: Vec<usize> = rows.iter().map(Vec::len).collect();
    while heights.iter().sum::<usize>() > usize::from(most)
        && let Some(longest) = heights.iter_mut().max().filter(|height| **height > 1)
    {
        *longest -= 1;
    }
    rows.into_iter().zip(heights).flat_map(|(row, height)| cut_lines(row, width, height as u16)).collect()
}

fn rows(screen: Screen, header: &Header) -> Vec<(&'static str, String)> {
    let positions = screen.turn().map_or(0, |turn| cached(turn.answer(Lane::Speculative)));
    let cache =
        |per: u64| format!("{} ({} positions × {})", bytes(per.saturating_mul(positions)), positions, bytes(per));
    let model = &header.model;
    let mut rows = vec![
        ("model", names(model)),
        ("target weights", format!("{} {}", bytes(model.weight_bytes), header.dtype)),
        ("target KV", cache(model.kv_bytes_per_token) + &folded(model)),
    ];
    if let Some(experts) = experts(model, u64::from(screen.session.settings().draft_len) + 1) {
        rows.insert(2, ("of them experts", experts));
    }
    match &header.drafter {
        None => rows.push(("drafter", "none".to_owned())),
        Some(drafter) => {
            let own = if drafter.weight_bytes == 0 {
                "no weights of its own".to_owned()
            } else {
                bytes(drafter.weight_bytes)
            };
            let proposes = match drafter.draft_vocab {
                some if some > 0 && some < model.vocab => {
                    let besides = if drafter.context_vocab > 0 { " + text" } else { "" };
                    let method = drafter.vocab_method.map_or(String::new(), |method| format!(" ({})", method.name()));
                    format!(", {some}/{} tokens{besides}{method}", model.vocab)
                }
                _ => String::new(),
            };
            rows.push(("drafter weights", format!("{own} {}{proposes}", drafter.dtype)));
            let kv = if drafter.kv_bytes_per_token == 0 && drafter.weight_bytes > 0 {
                "none of its own: it reads the target's".to_owned()
            } else if drafter.kv_bytes_per_token == 0 {
                "no cache of its own".to_owned()
            } else {
                format!("its own: {}", cache(drafter.kv_bytes_per_token))
            };
            rows.push(("drafter KV", kv));
            if drafter.block > 0 {
                rows.push(("drafter block", format!("one pass drafts up to {} tokens", drafter.block)));
            }
        }
    }
    if header.engine.is_some() {
        // what an attached server holds besides its weights is not reported
        for (name, text) in &mut rows {
            if matches!(*name, "target KV" | "drafter weights" | "drafter KV") {
                "not reported".clone_into(text);
            }
        }
    }
    rows.extend(on_gpu(screen, header));
    let states = states(screen, header);
    if let Some(account) = &header.memory {
        rows.extend(states);
        rows.extend(account_rows(account));
    } else {
        rows.push(states.unwrap_or_else(|| ("cache holds", format!("{} positions at most", header.ctx_len))));
    }
    rows
}

/// The GPU that computes, and what a round does there; nothing where the processor computes.
fn on_gpu(screen: Screen, header: &Header) -> Vec<(&'static str, String)> {
    let Some(gpu) = &header.gpu else {
        return Vec::new();
    };
    let checked =
        gpu.row_by_row.as_ref().map_or("self-test passed", |_| "drafts verified one by one: its self-test failed");
    let [adapter, api, kind] = [&gpu.adapter, &gpu.api, &gpu.kind].map(|name| text::one_line(name));
    let memory = match gpu.memory_bytes {
        0 => String::new(), // its API does not report it
        used => format!(", {} in use", bytes(used)),
    };
    let mut rows = vec![("GPU", format!("{adapter}, {kind}, {api}{memory}; {checked}"))];
    let stats = screen.turn().map(|turn| turn.answer(Lane::Speculative).stats());
    if let Some((rounds, work)) = stats.and_then(|stats| stats.on_device()) {
        let mean = |sum: u64| sum as f64 / rounds as f64;
        let total = work.total();
        let ms = |nanoseconds: u64| format!("{:.2} ms", mean(nanoseconds) / 1e6);
        let times = match total.nanoseconds {
            0 => "the device reports no timestamps".to_owned(),
            _ => format!(
                "drafts {} + verification {} on the GPU",
                ms(work.draft.nanoseconds),
                ms(work.verify.nanoseconds)
            ),
        };
        rows.push((
            "GPU per round",
            format!(
                "{:.1} submissions, {:.0} launches, {} read back, {times}",
                mean(total.submissions),
                mean(total.launches),
                bytes(total.read_bytes / rounds),
            ),
        ));
    }
    rows.extend(reads(screen, header, gpu));
    rows
}

/// How fast the GPU reads its memory, and a pass over one row in comparison; nothing where that was not measured.
fn reads(screen: Screen, header: &Header, gpu: &GpuInfo) -> Option<(&'static str, String)> {
    let rate = gpu.read_bytes_per_second;
    if rate == 0 {
        return None;
    }
    let most = format!("{}/s", bytes(rate));
    let one = screen.turn().and_then(|turn| Some((turn, turn.pass_costs()?.rows(1)?)));
    let text = match one.filter(|(_, cost)| gpu.pass_bytes > 0 && cost.us > 0.0) {
        None => format!("a kernel that only reads gets {most}"),
        Some((turn, cost)) => {
            let cache = cached(turn.answer(Lane::Speculative)).saturating_mul(header.model.kv_bytes_per_token);
            let (read, us) = (gpu.pass_bytes.saturating_add(cache), cost.device_us.unwrap_or(cost.us));
            let share = read as f64 / (us / 1e6) / rate as f64 * 100.0;
            format!(
                "one row: {share:.0} % of {most}, which a kernel that only reads gets ({} in {:.2} ms)",
                bytes(read),
                us / 1e3
            )
        }
    };
    Some(("GPU reads", text))
}

/// What passes take, and the sum of everything.
fn account_rows(account: &MemoryAccount) -> [(&'static str, String); 2] {
    let full = format!("{} with all {} positions in the cache", bytes(account.total()), account.ctx_len);
    [("passes", format!("{} at most", bytes(account.passes))), ("in all", full)]
}

/// The model's name, and the one that its file gives it.
fn names(model: &ModelInfo) -> String {
    let own = model.own_name.as_ref().map_or(String::new(), |own| format!(", in the file '{}'", text::one_line(own)));
    format!("{}{own}", text::one_line(&model.name))
}

/// How small a cache of latents is; nothing where keys and values are kept.
fn folded(model: &ModelInfo) -> String {
    match model.unfolded_kv_bytes_per_token.checked_div(model.kv_bytes_per_token) {
        Some(times) if times > 0 => format!(", latent: 1/{times}"),
        _ => String::new(),
    }
}

/// How many of the experts' bytes one row reads, and so many rows, which may choose different ones; `None` without experts.
fn experts(model: &ModelInfo, rows: u64) -> Option<String> {
    let ModelInfo { expert_bytes: all, expert_row_bytes: one, .. } = *model;
    let most = bytes(one.saturating_mul(rows).min(all));
    (all > 0).then(|| format!("{}: a row reads {}, {rows} rows at most {most}", bytes(all), bytes(one)))
}

/// The recurrent state, which does not grow with the text, and what is stored for rolling back; `None` without linear
/// layers.
fn states(screen: Screen, header: &Header) -> Option<(&'static str, String)> {
    let model = &header.model;
    let rows = u64::from(screen.session.settings().draft_len) + 1;
    let label = if model.snapshot_bytes == model.state_bytes { "state + copies" } else { "state + rows" };
    let kept = bytes(model.snapshot_bytes.saturating_mul(rows));
    let text = format!("{} + {kept} ({rows} × {})", bytes(model.state_bytes), bytes(model.snapshot_bytes));
    (model.state_bytes > 0).then_some((label, text))
}

/// Target and drafter on one line each of weights and caches.
fn short(screen: Screen, header: &Header) -> Vec<(&'static str, String)> {
    let positions = screen.turn().map_or(0, |turn| cached(turn.answer(Lane::Speculative)));
    let drafter = header.drafter.as_ref();
    let own = |per: u64| if per == 0 { "shared".to_owned() } else { bytes(per.saturating_mul(positions)) };
    let weights = drafter.map_or(String::new(), |d| format!(" + {}", bytes(d.weight_bytes)));
    let caches = drafter.map_or(String::new(), |d| format!(" + {}", own(d.kv_bytes_per_token)));
    vec![
        ("weights", format!("{}{weights}", bytes(header.model.weight_bytes))),
        ("KV caches", format!("{}{caches}", bytes(header.model.kv_bytes_per_token.saturating_mul(positions)))),
    ]
}

/// Positions in the target's cache: all committed but the anchor.
fn cached(answer: &Answer) -> u64 {
    (answer.prompt.len() + answer.tokens.len()).saturating_sub(1) as u64
}

fn bytes(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} B"),
        1_000..1_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", count as f64 / 1e6),
        _ => format!("{:.2} GB", count as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experts_are_counted_for_one_row_and_for_the_rows_of_a_round() {
        let model =
            |expert_bytes, expert_row_bytes| ModelInfo { expert_bytes, expert_row_bytes, ..ModelInfo::default() };
        let says = "18.00 GB: a row reads 562.5 MB, 5 rows at most 2.81 GB";
        assert_eq!(experts(&model(18_000_000_000, 562_500_000), 5).as_deref(), Some(says));
        assert_eq!(experts(&model(900, 600), 5).as_deref(), Some("900 B: a row reads 600 B, 5 rows at most 900 B"));
        assert_eq!(experts(&model(0, 0), 5), None);
    }

    #[test]
    fn the_account_has_passes_and_the_sum_with_a_full_cache() {
        let account = MemoryAccount {
            target_weights: 90_000_000,
            drafter_weights: 5_000_000,
            target_kv: 20_000,
            drafter_kv: 1_000,
            states: 0,
            passes: 7_500_000,
            ctx_len: 4096,
        };
        let [passes, all] = account_rows(&account);
        assert_eq!(passes, ("passes", "7.5 MB at most".to_owned()));
        assert_eq!(all, ("in all", "188.5 MB with all 4096 positions in the cache".to_owned()));
    }

    #[test]
    fn a_cache_of_latents_says_how_small_it_is() {
        let model = |kv_bytes_per_token, unfolded_kv_bytes_per_token| ModelInfo {
            kv_bytes_per_token,
            unfolded_kv_bytes_per_token,
            ..ModelInfo::default()
        };
        assert_eq!(folded(&model(100, 1599)), ", latent: 1/15");
        assert_eq!((folded(&model(100, 0)), folded(&model(0, 0))), (String::new(), String::new()));
    }
}
