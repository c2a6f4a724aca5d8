//! Reads what an answer must match, and checks it before a model is loaded.

use std::io::Read as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use draftscope::cli::GrammarArgs;
use draftscope::engine::grammar::{MOST_BYTES, check};
use draftscope::host::file_access;
use draftscope::protocol::{Grammar, GrammarKind};

/// The grammar that the arguments name; none for free text.
pub(crate) fn read(args: &GrammarArgs) -> Result<Option<Grammar>> {
    let (kind, text) = match (&args.json_schema, &args.regex, &args.grammar) {
        (Some(path), ..) => (GrammarKind::JsonSchema, read_file(path)?),
        (_, Some(regex), _) => (GrammarKind::Regex, regex.clone()),
        (.., Some(path)) => (GrammarKind::Lark, read_file(path)?),
        _ => return Ok(None),
    };
    let grammar = Grammar { kind, text };
    check(&grammar)?;
    Ok(Some(grammar))
}

/// The text of a file. A file that is too long is not read to its end.
fn read_file(path: &Path) -> Result<String> {
    let source = path.display();
    let file = file_access::open(path).with_context(|| format!("cannot open {source}"))?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read {source}"))?;
    if bytes.len() > MOST_BYTES {
        bail!("{source} has more than {} KiB; a grammar must be shorter", MOST_BYTES >> 10);
    }
    String::from_utf8(bytes).ok().with_context(|| format!("{source} is no UTF-8 text"))
}
