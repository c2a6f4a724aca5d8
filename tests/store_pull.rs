//! The default model, downloaded into the user's own cache, so that only the first run needs a download.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use std::fs;

use draftscope::store::{DEFAULT, ModelTable, Status, Store, resolve};

/// Fails if no source is reachable, unless `DRAFTSCOPE_OFFLINE=1` is set.
#[test]
fn the_default_model_is_found_or_downloaded() {
    if std::env::var("DRAFTSCOPE_OFFLINE").is_ok_and(|value| value == "1") {
        eprintln!("skipped: DRAFTSCOPE_OFFLINE=1");
        return;
    }
    let file = resolve(None).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(fs::metadata(&file).unwrap().len(), DEFAULT.bytes);

    let store = Store::from_env().unwrap();
    let by_path = store.info(file.to_str().unwrap(), &mut ()).unwrap(); // reads the file, even if its digest is remembered
    assert_eq!(by_path.sha256.as_deref(), Some(DEFAULT.sha256));

    let entries = store.list().unwrap();
    assert_eq!((entries[0].name.as_str(), &entries[0].status), (DEFAULT.name, &Status::Ready));
    assert!(ModelTable(&entries).to_string().contains("smollm2-135m *"));
}
