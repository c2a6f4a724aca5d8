//! The drafter that belongs to a recommended model: `--model NAME` runs both.

use std::path::PathBuf;

use draftscope::cli::ModelArgs;
use draftscope::protocol::DrafterKind;
use draftscope::store::{RecommendedModel, recommended};

/// Names the drafter's files where the arguments leave them open.
pub(crate) fn apply(args: &mut ModelArgs) {
    let name = args.model.as_ref().and_then(|model| model.to_str());
    if let Some(model) = name.and_then(recommended) {
        pair(args, model);
    }
}

fn pair(args: &mut ModelArgs, model: &RecommendedModel) {
    let is_left_open = args.draft_model.is_none() && args.mtp.is_none();
    let Some(draft) = model.draft.as_ref().filter(|_| is_left_open) else {
        return;
    };
    let Some(drafter) = drafting_with(&args.drafter, model.drafter.option()) else {
        return;
    };
    if let Some(problem) = super::recommended_models::drafter_problem(model) {
        super::output::say(&format!("{} runs without its drafter: {problem}", model.name));
        return;
    }
    if args.drafter != drafter && args.drafter != DrafterKind::DEFAULT.name() {
        super::output::say(&format!("{} has no MTP module: its drafter is {drafter}", model.name));
    }
    args.draft_model = Some(PathBuf::from(draft.place()));
    args.drafter = drafter;
}

/// A drafter with `own`, the model's, in the place of the draft module; `None` if `own` does not take part in it.
fn drafting_with(asked: &str, own: &str) -> Option<String> {
    let module = DrafterKind::Mtp.name();
    let kinds: Vec<_> = asked.split('+').map(|kind| if kind == module { own } else { kind }).collect();
    kinds.contains(&own).then(|| kinds.join("+"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use draftscope::cli::Cli;

    use super::*;

    fn paired(args: &[&str]) -> (Option<PathBuf>, String) {
        let mut cli = Cli::parse_from(["draftscope", "run", "--prompt", "x"].iter().chain(args));
        let args = cli.model_args_mut().unwrap();
        apply(args);
        (args.draft_model.clone(), args.drafter.clone())
    }

    #[test]
    fn a_recommended_model_brings_its_drafter_unless_another_is_named() {
        let (draft, drafter) = paired(&["--model", "qwen3-4b"]);
        let second = Some(PathBuf::from("Qwen/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf"));
        assert_eq!((&draft, drafter.as_str()), (&second, "suffix+draft-model"), "copies and the second model");
        let (draft, drafter) = paired(&["--model", "QWEN3-4B-EAGLE3"]);
        assert_eq!((draft, drafter.as_str()), (Some(PathBuf::from("AngelSlim/Qwen3-4B_eagle3")), "suffix+mtp"));
        let (draft, drafter) = paired(&["--model", "qwen3-4b-dflash"]);
        assert_eq!((draft, drafter.as_str()), (Some(PathBuf::from("z-lab/Qwen3-4B-DFlash")), "suffix+mtp"));
        for (asked, takes) in [
            ("mtp", "draft-model"),
            ("ngram+mtp", "ngram+draft-model"),
            ("draft-model", "draft-model"),
            ("suffix+draft-model", "suffix+draft-model"),
        ] {
            let paired = paired(&["--model", "qwen3-4b", "--drafter", asked]);
            assert_eq!(paired, (second.clone(), takes.to_owned()), "{asked}");
        }
        assert_eq!(paired(&["--model", "qwen3-4b-eagle3", "--drafter", "mtp"]).1, "mtp", "what is asked for stays");
        for args in [
            &["--model", "qwen3.5-4b"][..],
            &["--model", "qwen3-4b", "--drafter", "ngram"],
            &["--model", "qwen3-4b", "--drafter", "suffix"],
            &["--model", "qwen3-4b-eagle3", "--drafter", "draft-model"],
            &["--model", "qwen3-4b", "--mtp", "folder"],
            &["--model", "./qwen3-4b"],
            &[],
        ] {
            assert_eq!(paired(args).0, None, "{args:?}");
        }
        let named = paired(&["--model", "qwen3-4b", "--draft-model", "x.gguf"]);
        assert_eq!(named, (Some(PathBuf::from("x.gguf")), "suffix+mtp".to_owned()));
    }
}
