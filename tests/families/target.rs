//! The tests that every target passes.

use draftscope::model::files::MatrixForm;
use draftscope::model::load::OpenModel;
use draftscope::model::options::WeightType;
use draftscope::protocol::{DrafterKind, Message};

use crate::case::{Case, Opened, Run, largest};
use crate::decode::{
    Drafter, EarlyExitDrafter, LEN, ModelDrafter, NgramDrafter, NoDrafter, RandomDrafter, decode, next_logits, settings,
};
pub use crate::spoil::targets as refused;
use crate::support::{
    Backend, Card, ChatTemplate, Checkpoint, Golden, LoadOptions, LogitRows, Model, ModelError, State, Tap, TokenId,
    bare_options, family_number, open, oracle_text, path,
};

/// Logits of the tokens, computed in passes of `rows` rows.
fn in_passes(target: &dyn Model, tokens: &[TokenId], rows: usize) -> Vec<f32> {
    let mut target = target.fork().unwrap();
    let pass = |tokens| target.forward(tokens, LogitRows::All).unwrap().logits.as_slice().to_vec();
    tokens.chunks(rows).flat_map(pass).collect()
}

/// Logits in one pass, in passes of three rows and of one, and states equal the oracle.
pub fn logits(case: &Case) {
    let golden = case.golden();
    for run in case.runs {
        let mut target = case.open(run).target;
        compare_with_oracle(case, run, target.as_mut(), &golden, "");
    }
    if let Some(cap) = case.soft_cap {
        let largest = golden.numbers("logits").iter().fold(0f32, |most, logit| most.max(logit.abs()));
        assert!(largest < cap && largest > cap / 6.0, "{largest}");
    }
}

/// Compares with the golden values that have this prefix.
pub fn compare_with_oracle(case: &Case, run: &Run, target: &mut dyn Model, golden: &Golden, prefix: &str) {
    let tokens = golden.tokens(&format!("{prefix}tokens"));
    let numbers = |name: &str| golden.numbers(&format!("{prefix}{name}"));
    let (logits, mut states) = (numbers("logits"), numbers("hidden"));
    if let Some(residual) = golden.find(&format!("{prefix}residual")) {
        target.set_tap(&Tap::new(vec![State::Normed, State::Residual])).unwrap();
        let width = states.len() / tokens.len();
        let both = states.chunks(width).zip(residual.chunks(width)).flat_map(|(a, b)| [a, b].concat());
        states = both.collect();
    }
    let (singles, threes) = (in_passes(target, &tokens, 1), in_passes(target, &tokens, 3));
    let out = target.forward(&tokens, LogitRows::All).unwrap();
    assert!(!run.native() || singles == threes, "rows in one pass have the bits of single rows");
    let what = format!("{prefix}{} on {:?}", case.fixture, run.backend);
    run.limit.check(&format!("{what}, logits"), out.logits.as_slice(), &logits);
    run.limit.check(&format!("{what}, logits one by one"), &singles, &logits);
    run.limit.check(&format!("{what}, logits in threes"), &threes, &logits);
    run.limit.check(&format!("{what}, states"), out.hidden.as_slice(), &states);
}

/// Rows of one pass have the logits and states of single rows: the same bits on the native kernels.
pub fn rows(case: &Case) {
    let tokens = case.golden().tokens("greedy");
    for run in case.runs {
        let Opened { target: mut together, mut modules, .. } = case.open(run);
        modules.iter_mut().take(1).for_each(|module| together.set_tap(&module.tap()).unwrap());
        let mut alone = together.fork().unwrap();
        let mut module = modules.into_iter().next().filter(|module| !module.shares_target_kv());
        for rows in [1, 2, 3, 5, 7, 11, 16] {
            let at = together.len();
            let out = together.forward(&tokens[at..at + rows], LogitRows::All).unwrap();
            let slots = module.as_mut().map(|module| module.forward(&tokens[at + 1..=at + rows], &out.hidden).unwrap());
            module.iter_mut().for_each(|module| module.truncate(at).unwrap());
            for row in 0..rows {
                let one = alone.forward(&tokens[at + row..=at + row], LogitRows::All).unwrap();
                let mut pairs =
                    vec![(one.logits.row(0), out.logits.row(row)), (one.hidden.row(0), out.hidden.row(row))];
                let slot = module.as_mut().map(|module| {
                    let hidden = out.hidden.slice(row..row + 1);
                    module.forward(&tokens[at + row + 1..at + row + 2], &hidden).unwrap()
                });
                pairs.extend(slot.iter().zip(&slots).map(|(one, slots)| (one.hidden.row(0), slots.hidden.row(row))));
                for (what, (one, row_of_many)) in ["logits", "state", "slot"].into_iter().zip(pairs) {
                    let off = largest(one, row_of_many);
                    assert!(off <= run.rows, "{:?}: {what} of position {}: {off}", run.backend, at + row);
                }
            }
        }
    }
}

/// After a rollback to any row of a verify pass, a target continues like one that ran only the kept tokens.
pub fn rollback(case: &Case) {
    let tokens = case.golden().tokens("tokens");
    let mut bases = vec![0, 1, 5, 9];
    bases.extend(case.recurrent.then_some([2, 3]).into_iter().flatten()); // within the width of the convolution
    bases.extend(case.window.map(|window| [2, window - 1, window, window + 20]).into_iter().flatten());
    for run in case.runs {
        let target = case.open(run).target;
        for base in bases.iter().copied() {
            for rows in 1..=7 {
                let (mut verified, mut plain) = (target.fork().unwrap(), target.fork().unwrap());
                if base > 0 {
                    verified.forward(&tokens[..base], LogitRows::All).unwrap();
                    plain.forward(&tokens[..base], LogitRows::All).unwrap();
                }
                let since = verified.checkpoint().unwrap();
                for accepted in 0..rows {
                    let mut kept = verified.fork().unwrap();
                    kept.forward(&tokens[base..base + rows], LogitRows::All).unwrap();
                    let len = base + accepted + 1;
                    assert_eq!(kept.rewindable(len), len);
                    kept.truncate(len, &since).unwrap();
                    plain.forward(&tokens[base + accepted..len], LogitRows::All).unwrap();
                    assert_eq!((kept.len(), plain.len()), (len, len));
                    let next = &tokens[18..21];
                    let off = largest(&next_logits(kept.as_ref(), next), &next_logits(plain.as_ref(), next));
                    assert!(off <= run.rows, "{:?}: {accepted} of {rows} rows after {base}: {off}", run.backend);
                }
            }
        }
    }
}

/// A copy and its original are independent.
pub fn fork(case: &Case) {
    let tokens = oracle_text(&case.golden());
    for run in case.runs {
        let fresh = case.open(run).target;
        let of = |passes: &[&[TokenId]]| {
            let mut target = fresh.fork().unwrap();
            passes.iter().for_each(|tokens| drop(target.forward(tokens, LogitRows::Last).unwrap()));
            target
        };
        let mut original = of(&[&tokens[..12]]);
        let mut copy = original.fork().unwrap();
        copy.forward(&tokens[40..47], LogitRows::All).unwrap();
        assert_eq!((original.len(), copy.len()), (12, 19));
        original.forward(&tokens[12..14], LogitRows::All).unwrap();
        for (got, want) in
            [(original, of(&[&tokens[..12], &tokens[12..14]])), (copy, of(&[&tokens[..12], &tokens[40..47]]))]
        {
            assert_eq!(next_logits(got.as_ref(), &tokens[50..53]), next_logits(want.as_ref(), &tokens[50..53]));
        }
    }
}

/// A full context and unknown tokens are errors without side effects; an emptied target starts again.
pub fn bounds(case: &Case) {
    for run in case.runs {
        let mut target = case.open(run).target;
        for len in [0, 5] {
            let full = target.forward(&vec![TokenId(1); target.spec().ctx_len - len + 1], LogitRows::All);
            assert!(matches!(full, Err(ModelError::ContextFull { .. })) && target.len() == len);
            let unknown = target.forward(&[TokenId(1), TokenId(9999)], LogitRows::All);
            assert!(matches!(unknown, Err(ModelError::Vocabulary { .. })) && target.len() == len);
            target.forward(&[TokenId(1); 5], LogitRows::Last).unwrap();
        }
        target.truncate(0, &Checkpoint { len: 0 }).unwrap();
        let first = next_logits(target.as_ref(), &[TokenId(1)]);
        target.forward(&[TokenId(2)], LogitRows::Last).unwrap();
        target.truncate(0, &Checkpoint { len: 0 }).unwrap();
        assert_eq!(next_logits(target.as_ref(), &[TokenId(1)]), first);
    }
}

/// With every drafter that needs no module, greedy decoding writes the plain text, which equals the oracle's.
pub fn speculation(case: &Case) {
    let golden = case.golden();
    let prompt = &golden.tokens("tokens")[..8];
    for run in case.runs {
        let target = case.open(run).target;
        let plain = decode(target.as_ref(), Box::new(NoDrafter), &settings(0), prompt, LEN).text;
        if run.greedy {
            assert_eq!(plain, golden.tokens("greedy")[..LEN], "on {:?}", run.backend);
        }
        let draft_model = case.draft_model.map(|name| {
            let draft_model = Some(path(name));
            let options = LoadOptions { draft_model, ..bare_options(path(case.fixture), run.backend) };
            let (model, info) = open(&options).draft_model.unwrap().unwrap();
            assert_eq!((info.kind, info.draft_vocab), (DrafterKind::DraftModel, target.spec().info.vocab));
            (name, model)
        });
        // one of the draft models is the target itself
        let models = if case.draft_model == Some(case.fixture) { 1 } else { 2 };
        for k in case.drafts.iter().copied() {
            let mut drafters: Vec<(&str, Box<dyn Drafter>)> =
                vec![("ngram", Box::new(NgramDrafter)), ("random", Box::new(RandomDrafter))];
            // recurrent targets do not support early exit
            if !case.recurrent || k == 3 {
                drafters.push(("early exit", Box::new(EarlyExitDrafter)));
            }
            let own = (case.fixture, &target);
            for (name, model) in draft_model.iter().map(|(name, model)| (*name, model)).chain([own]).take(models) {
                drafters.push((name, Box::new(ModelDrafter::new(model.fork().unwrap()))));
            }
            for (name, drafter) in drafters {
                let answer = decode(target.as_ref(), drafter, &settings(k), prompt, LEN);
                assert_eq!(answer.text, plain, "{:?}: {name}, k = {k}", run.backend);
                let refused = case.recurrent && name == "early exit";
                assert_eq!(answer.notices.len(), usize::from(refused), "{name}: {:?}", answer.notices);
                // drafts of the target itself are always right
                let fewest = (LEN - 1).div_ceil(usize::from(k) + 1);
                assert!(name != case.fixture || answer.rounds == fewest, "{} rounds at k = {k}", answer.rounds);
            }
        }
    }
}

/// Bytes of weights and cache equal those in the files' headers.
pub fn memory(case: &Case) {
    let card = Card::read(&path(case.fixture)).unwrap();
    for run in case.runs {
        let target = case.open(run).target;
        let (info, native) = (&target.spec().info, run.native());
        let halves = !native && !card.same_on_candle;
        let cached = case.kv_bytes >> u32::from(run.form.is_some_and(|form| form.halves));
        if run.form.is_none() {
            assert_eq!(info.kv_bytes_per_token, card.kv_bytes_per_token << u32::from(halves), "{:?}", run.backend);
        } else {
            assert_eq!(info.kv_bytes_per_token, cached, "{:?}", run.backend);
        }
        if native {
            continue;
        }
        assert_eq!(info.kv_bytes_per_token, cached);
        // in f32, except tables whose rows are looked up, which stay as stored, in two bytes
        let tables = family_number(&card, "attention", "per_layer_weights").unwrap_or(0);
        let [all, narrow] = [WeightType::F32, WeightType::Bf16].map(|of| tensors_as(case, MatrixForm::Candle(of)));
        assert_eq!(all - narrow, 2 * card.parameters, "norms are as wide in both");
        assert_eq!(info.weight_bytes, all - 2 * tables);
        assert_eq!(info.state_bytes > 0, case.recurrent);
    }
}

/// Bytes of the target's tensors, loaded in this form.
fn tensors_as(case: &Case, form: MatrixForm) -> u64 {
    let opened = OpenModel::open(&path(case.fixture)).unwrap();
    let tensors = opened.source.loaded_tensors(opened.config.transformer().layers, 0);
    tensors.iter().map(|tensor| tensor.bytes(form)).sum()
}

/// The program uses the native kernels if they support the file.
pub fn backend(case: &Case) {
    let loaded = open(&bare_options(path(case.fixture), Backend::Auto));
    let native = case.runs.iter().any(Run::native);
    assert_eq!(loaded.target.spec().backend, if native { "native" } else { "candle" });
    assert_eq!(loaded.backend_notice.is_none(), native, "{:?}", loaded.backend_notice);
}

/// Texts and conversations become the oracle's tokens.
pub fn texts(case: &Case) {
    let clock = ChatTemplate::new("Today: {{ strftime_now('%d %b %Y') }}", String::new(), String::new()).unwrap();
    let today = clock.render(&[]).unwrap();
    let Opened { codec, template, .. } = case.open(&case.runs[0]);
    let golden = case.golden().json;
    for text in golden["texts"].as_array().unwrap() {
        let want: Vec<TokenId> = serde_json::from_value(text["ids"].clone()).unwrap();
        let text = text["text"].as_str().unwrap();
        assert_eq!(codec.encode(text).unwrap(), want, "{text:?}");
        assert_eq!(codec.encode_raw(text).unwrap().len(), want.len() + usize::from(case.begins), "{text:?}");
        // tokenizers may compose characters
        if !text.contains('\u{301}') {
            let bytes: Vec<u8> = want.iter().flat_map(|id| codec.piece(*id).bytes.to_vec()).collect();
            assert_eq!(String::from_utf8(bytes).unwrap(), text, "the bytes of pieces are the text");
        }
    }
    for (kind, messages) in golden["messages"].as_object().unwrap() {
        let messages: Vec<Message> = serde_json::from_value(messages.clone()).unwrap();
        let rendered = template.as_ref().unwrap().render(&messages).unwrap();
        // the oracle had no clock, so its template wrote a fixed date
        let want = golden["rendered"][kind].as_str().unwrap().replace("Today: 1 Jan 2025", &today);
        assert_eq!(rendered, want, "{kind}");
    }
    assert_eq!(codec.end_names(), case.ends);
}
