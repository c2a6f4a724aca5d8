//! Gemma 4's draft head with clusters: drafts must come from the tokens of the best clusters, which the test computes from
//! the files.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use draftscope::engine::speculate::decoder::Decoder;
use draftscope::protocol::{Drafted, EventKind, MtpSpec, Sampling, Settings, VerifyRule};

use crate::cases::GEMMA4;
use crate::decode::{ModuleDrafter, settings};
use crate::support::{DraftModule, Forward, Model, ModelError, Rows, TokenId, oracle_text, path, read_tensors};

/// An assistant, and the state that its last slot passed to the next one.
struct Watched(Box<dyn DraftModule>, Rc<RefCell<Vec<f32>>>);

impl DraftModule for Watched {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn spec(&self) -> MtpSpec {
        self.0.spec()
    }
    fn shares_target_kv(&self) -> bool {
        self.0.shares_target_kv()
    }
    fn attach_kv(&mut self, target: &dyn Model) -> Result<(), ModelError> {
        self.0.attach_kv(target)
    }
    fn hold_position(&mut self, position: Option<usize>) {
        self.0.hold_position(position);
    }
    fn forward(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<Forward, ModelError> {
        let out = self.0.forward(tokens, hidden)?;
        *self.1.borrow_mut() = out.hidden.last().unwrap().to_vec();
        Ok(out)
    }
    fn truncate(&mut self, len: usize) -> Result<(), ModelError> {
        self.0.truncate(len)
    }
    fn draft_vocab(&self) -> &[TokenId] {
        self.0.draft_vocab()
    }
    fn fork(&self) -> Result<Box<dyn DraftModule>, ModelError> {
        Ok(Box::new(Self(self.0.fork()?, Rc::clone(&self.1))))
    }
}

/// The head of the assistant with clusters, read from its file.
struct Clusters {
    /// `[64, 32]`: maps the state that the head reads to the one that is passed on.
    post: Vec<f64>,
    /// `[16, 32]`
    centroids: Vec<f64>,
    /// Tokens of the clusters, twenty per cluster.
    ordering: Vec<u32>,
}

impl Clusters {
    const D: usize = 32;

    fn read() -> Self {
        let tensors = read_tensors(&path("gemma4-assistant").join("model.safetensors"));
        let data = |name: &str| &tensors.iter().find(|tensor| tensor.name == name).unwrap().data;
        let numbers = |name: &str| {
            data(name).as_chunks().0.iter().map(|bytes| half::bf16::from_le_bytes(*bytes).to_f64()).collect()
        };
        let ordering = data("masked_embedding.token_ordering").as_chunks().0;
        Self {
            post: numbers("post_projection.weight"),
            centroids: numbers("masked_embedding.centroids.weight"),
            ordering: ordering.iter().map(|bytes| i64::from_le_bytes(*bytes) as u32).collect(),
        }
    }

    /// The head's state, from the one that was passed on: least squares, by elimination.
    fn state(&self, handed_on: &[f32]) -> Vec<f64> {
        const D: usize = Clusters::D;
        let column = |j: usize| self.post.iter().skip(j).step_by(D);
        let mut rows: Vec<Vec<f64>> = (0..D)
            .map(|i| {
                let with = |j: usize| column(i).zip(column(j)).map(|(a, b)| a * b).sum();
                let right = column(i).zip(handed_on).map(|(a, h)| a * f64::from(*h)).sum();
                (0..D).map(with).chain([right]).collect()
            })
            .collect();
        for i in 0..D {
            let pivot = rows[i].clone();
            for (j, row) in rows.iter_mut().enumerate().filter(|(j, _)| *j != i) {
                let times = row[i] / pivot[i];
                assert!(times.is_finite(), "{i}, {j}");
                row.iter_mut().zip(&pivot).for_each(|(x, p)| *x -= times * p);
            }
        }
        let state: Vec<f64> = rows.iter().enumerate().map(|(i, row)| row[D] / row[i]).collect();
        let made = self.post.chunks(D).map(|row| row.iter().zip(&state).map(|(a, b)| a * b).sum::<f64>());
        assert!(made.zip(handed_on).all(|(made, h)| (made - f64::from(*h)).abs() < 1e-3), "no such state");
        state
    }

    /// Tokens of the four best clusters; `None` if the fourth and the fifth are almost equal.
    fn scored(&self, handed_on: &[f32]) -> Option<BTreeSet<u32>> {
        let state = self.state(handed_on);
        let score = |row: &[f64]| row.iter().zip(&state).map(|(a, b)| a * b).sum::<f64>();
        let mut scores: Vec<(f64, usize)> = self.centroids.chunks(Self::D).map(score).zip(0..).collect();
        scores.sort_by(|a, b| b.0.total_cmp(&a.0));
        let tokens = scores[..4].iter().flat_map(|(_, cluster)| &self.ordering[cluster * 20..][..20]);
        (scores[3].0 - scores[4].0 > 1e-3).then(|| tokens.copied().collect())
    }
}

#[test]
fn drafts_are_drawn_from_the_clusters_that_were_scored() {
    let all = oracle_text(&GEMMA4.golden());
    let clusters = Clusters::read();
    // temperatures that draw almost only the best token, and almost any token with a logit
    for (temperature, fewest) in [(0.05, 5), (100.0, 60)] {
        let opened = GEMMA4.open(&GEMMA4.runs[0]);
        let sampling = Sampling { temperature, ..Sampling::default() };
        let settings = Settings { sampling, rule: VerifyRule::Rejection, ..settings(3) };
        let handed_on = Rc::new(RefCell::new(Vec::new()));
        let module = Watched(opened.modules.into_iter().next().unwrap(), Rc::clone(&handed_on));
        let mut decoder = Decoder::new(opened.target, Box::new(ModuleDrafter::new(Box::new(module))), &settings);
        decoder.prefill(1, &all[..60]).unwrap();
        let (mut drawn, mut checked) = (BTreeSet::new(), 0);
        let mut on_event = |event| {
            match event {
                EventKind::Drafted(Drafted { token, .. }) => {
                    if let Some(tokens) = clusters.scored(&handed_on.borrow()) {
                        assert!(tokens.contains(&token.id.0), "{token:?} got no logit");
                        checked += 1;
                    }
                    drawn.insert(token.id);
                }
                EventKind::Notice { message } => panic!("{message}"),
                _ => {}
            }
            Duration::ZERO
        };
        for _ in 0..30 {
            decoder.round(&mut on_event).unwrap();
        }
        assert!(checked > 60 && drawn.len() >= fewest, "{checked} of 90, {} tokens at {temperature}", drawn.len());
    }
}
