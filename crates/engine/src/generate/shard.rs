//! Shards on disk: safetensors files that PyTorch reads directly, and the plan they belong to.
//!
//! Tensors of a shard with N tokens of S conversations: `tokens` i32 [N]; `roles` u8 [N] (0 given, 1 answer,
//! 2 invented); `hidden` f16 [N, d], after the final norm; `starts` i64 [S + 1], where conversations begin; `tasks`
//! i64 [S], their lines, counted from 0; `temperatures` f32 [S]. If the plan names blocks, `layers`
//! f16 [N, blocks · d]: the residual stream after each of them, divided by its root mean square.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use half::f16;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde::{Deserialize, Serialize};

use draftscope_host::file_access::temporary_file_in;

use super::error::GenerateError;
use super::sequence::Finished;
use super::task::Task;

/// Version of the format of shards and plan.
pub const FORMAT_VERSION: u32 = 1;

/// The inputs of a folder of shards; equal plans give equal shards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// [`FORMAT_VERSION`].
    pub version: u32,
    /// Name of the target.
    pub model: String,
    /// SHA-256 of the target's file, when known.
    pub model_sha256: Option<String>,
    /// SHA-256 of the task file.
    pub tasks_sha256: String,
    /// Number of tasks.
    pub tasks: usize,
    /// Tasks per shard.
    pub shard_tasks: usize,
    /// Most positions of a conversation.
    pub ctx_len: usize,
    /// Width of hidden states.
    pub hidden_size: usize,
    /// Numbers of the blocks after which the hidden states are stored, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hidden_layers: Vec<usize>,
}

impl Plan {
    /// Writes the plan into the folder, or checks that the folder has this plan.
    ///
    /// # Errors
    /// [`GenerateError::OtherRun`] when the folder has another plan, [`GenerateError::File`] when it cannot be used.
    pub fn claim(&self, folder: &Path) -> Result<(), GenerateError> {
        fs::create_dir_all(folder).map_err(|e| GenerateError::file(folder, e))?;
        let path = folder.join("plan.json");
        if !path.exists() {
            let json = serde_json::to_vec_pretty(self).expect("a plan is plain data");
            return write(&path, &json);
        }
        let bytes =
            draftscope_host::file_access::read_regular(&path, 1 << 20).map_err(|e| GenerateError::file(&path, e))?;
        let there: Self = serde_json::from_slice(&bytes).map_err(|e| GenerateError::file(&path, e.into()))?;
        let other = |what| Err(GenerateError::OtherRun { path: folder.to_owned(), what });
        match () {
            () if there.tasks_sha256 != self.tasks_sha256 => other("the task file"),
            () if there.model_sha256 != self.model_sha256 || there.model != self.model => other("the model"),
            () if there != *self => other("a setting in plan.json"),
            () => Ok(()),
        }
    }

    /// Number of shards.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.tasks.div_ceil(self.shard_tasks)
    }

    /// Lines of the task file that a shard contains, counted from 0.
    #[must_use]
    pub fn lines(&self, shard: usize) -> std::ops::Range<usize> {
        shard * self.shard_tasks..self.tasks.min((shard + 1) * self.shard_tasks)
    }
}

/// File of a shard.
pub(super) fn path(folder: &Path, shard: usize) -> PathBuf {
    folder.join(format!("shard-{shard:05}.safetensors"))
}

/// The ended conversations of one shard, by line.
#[derive(Debug, Default)]
pub(super) struct Shard {
    pub(super) ended: usize,
    kept: BTreeMap<usize, Finished>,
}

impl Shard {
    pub(super) fn add(&mut self, line: usize, finished: Option<Finished>) {
        self.ended += 1;
        self.kept.extend(finished.map(|finished| (line, finished)));
    }

    /// Number of kept conversations.
    pub(super) fn kept(&self) -> usize {
        self.kept.len()
    }

    /// Writes the file: under a temporary name, then renamed.
    pub(super) fn write(&self, path: &Path, tasks: &[Task], plan: &Plan) -> Result<(), GenerateError> {
        let mut starts = vec![0];
        let (mut tokens, mut roles, mut hidden, mut layers) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for conversation in self.kept.values() {
            tokens.extend(conversation.tokens.iter().flat_map(|token| token.0.to_le_bytes()));
            roles.extend(conversation.roles.iter().map(|role| *role as u8));
            hidden.extend(conversation.hidden.iter().flat_map(|x: &f16| x.to_le_bytes()));
            layers.extend(conversation.layers.iter().flat_map(|x: &f16| x.to_le_bytes()));
            starts.push(roles.len() as i64);
        }
        let lines: Vec<u8> = self.kept.keys().flat_map(|line| (*line as i64).to_le_bytes()).collect();
        let temperatures = self.kept.keys().flat_map(|line| tasks[*line].temperature.to_le_bytes()).collect::<Vec<_>>();
        let starts_bytes: Vec<u8> = starts.iter().flat_map(|start| start.to_le_bytes()).collect();
        let (n, s) = (roles.len(), self.kept.len());
        let mut tensors = vec![
            ("tokens", Dtype::I32, vec![n], &tokens),
            ("roles", Dtype::U8, vec![n], &roles),
            ("hidden", Dtype::F16, vec![n, plan.hidden_size], &hidden),
            ("starts", Dtype::I64, vec![s + 1], &starts_bytes),
            ("tasks", Dtype::I64, vec![s], &lines),
            ("temperatures", Dtype::F32, vec![s], &temperatures),
        ];
        if !plan.hidden_layers.is_empty() {
            tensors.push(("layers", Dtype::F16, vec![n, plan.hidden_layers.len() * plan.hidden_size], &layers));
        }
        let views = tensors.into_iter().map(|(name, dtype, shape, bytes)| {
            (name, TensorView::new(dtype, shape, bytes).expect("bytes were counted for this shape"))
        });
        let bytes = safetensors::serialize(views, None).expect("names and shapes are plain");
        write(path, &bytes)
    }
}

/// Writes a file under a temporary name and renames it. A file that cannot be finished is removed, since a full disk needs
/// the space.
fn write(path: &Path, bytes: &[u8]) -> Result<(), GenerateError> {
    let failed = |e| GenerateError::file(path, e);
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut temporary = temporary_file_in(folder).map_err(failed)?;
    temporary.write_all(bytes).and_then(|()| temporary.as_file().sync_all()).map_err(failed)?;
    temporary.persist(path).map_err(|error| failed(error.error))?;
    if let Some(folder) = path.parent().and_then(|folder| fs::File::open(folder).ok()) {
        let _ = folder.sync_all(); // so that the name survives a power cut, where directories can be synced
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_failed_shard_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let shard = path(folder.path(), 3);
        write(&shard, b"one").unwrap();
        write(&shard, b"two").unwrap();
        assert_eq!(
            (fs::read(&shard).unwrap(), names(folder.path())),
            (b"two".to_vec(), vec!["shard-00003.safetensors".into()])
        );
        let taken = path(folder.path(), 4);
        fs::create_dir_all(taken.join("in the way")).unwrap();
        assert!(write(&taken, b"three").unwrap_err().to_string().contains("shard-00004.safetensors cannot be used"));
        assert_eq!(names(folder.path()).len(), 2, "{:?}", names(folder.path()));
    }
}
