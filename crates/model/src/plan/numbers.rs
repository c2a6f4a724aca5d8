//! Numbers that follow from a plan: weights, cache, state, and how wide a pass gets.

use super::whole::Plan;
use super::{Attention, Delta, Experts, Feed, Folded, Head, Keys, Latent, LatentQueries, Layer, Matrix, Mixer};
use crate::nn::PassWidths;

impl Plan {
    /// Weights of all matrices and tables; a table that is the head too counts once.
    #[must_use]
    pub fn weights(&self) -> u64 {
        let head = match &self.end.head {
            Head::Own(matrix) => matrix.weights(),
            Head::Tied => 0,
        };
        let shares = self.embedding.by_layer.as_ref().map_or(0, |of| of.project.weights());
        let layers = self.layers.iter().map(Layer::weights).sum::<u64>();
        self.embedding.table.weights() + head + shares + self.looked_up_weights() + layers
    }

    /// Weights of the table with a slice for each layer, whose rows are only looked up, so it stays as stored.
    #[must_use]
    pub fn looked_up_weights(&self) -> u64 {
        self.embedding.by_layer.as_ref().map_or(0, |of| of.table.weights())
    }

    /// Weights that a token is multiplied with: without tables that are only looked up, and experts that do not run.
    #[must_use]
    pub fn active_weights(&self) -> u64 {
        let embedding = match self.end.head {
            Head::Own(_) => self.embedding.table.weights(),
            Head::Tied => 0,
        };
        let idle = self.experts().map(|experts| experts.idle_weights()).sum::<u64>();
        self.weights() - self.looked_up_weights() - embedding - idle
    }

    /// Values cached of a position, in all layers together.
    #[must_use]
    pub fn cached_values(&self) -> u64 {
        self.layers.iter().map(Layer::cached_values).sum()
    }

    /// Values of a position that keys and values of all heads would take where latent attention caches one row; 0 without it.
    #[must_use]
    pub fn unfolded_values(&self) -> u64 {
        self.latents().map(|latent| (latent.heads * (latent.plain + latent.rotated + latent.value)) as u64).sum()
    }

    /// Bytes of the states of recurrent layers.
    #[must_use]
    pub fn state_bytes(&self) -> u64 {
        self.deltas().map(|delta| delta.shape.state_bytes()).sum()
    }

    /// Bytes of a row's inputs from which recurrent layers compute their states again.
    #[must_use]
    pub fn replay_bytes(&self) -> u64 {
        self.deltas().map(|delta| delta.shape.input_bytes()).sum()
    }

    /// Whether experts make it so large that memory is checked before the weights are downloaded.
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.experts().next().is_some()
    }

    /// The experts of the layers that have some.
    pub fn experts(&self) -> impl Iterator<Item = &Experts> {
        self.layers.iter().filter_map(Layer::experts)
    }

    /// The recurrent mixers.
    pub fn deltas(&self) -> impl Iterator<Item = &Delta> {
        self.layers.iter().filter_map(|layer| match &layer.mixer {
            Mixer::Delta(delta) => Some(delta),
            _ => None,
        })
    }

    /// The mixers with latent attention.
    pub fn latents(&self) -> impl Iterator<Item = &Latent> {
        self.layers.iter().filter_map(Layer::latent)
    }

    /// The mixers with keys and values.
    pub fn attentions(&self) -> impl Iterator<Item = &Attention> {
        self.layers.iter().filter_map(|layer| match &layer.mixer {
            Mixer::Attention(attention) => Some(attention),
            _ => None,
        })
    }

    /// The widest of what layers compute of a row.
    #[must_use]
    pub fn pass_widths(&self) -> PassWidths {
        let mut widths = PassWidths {
            d_model: self.width,
            inputs: self.embedding.by_layer.as_ref().map_or(0, |of| of.table.columns),
            rotary: self.angles.iter().map(|angles| angles.width).sum(),
            vocab: self.vocab,
            ..PassWidths::default()
        };
        let has_experts = self.is_large();
        self.layers.iter().for_each(|layer| layer.widen(&mut widths, has_experts));
        widths
    }
}

impl Layer {
    /// Weights of its matrices.
    #[must_use]
    pub fn weights(&self) -> u64 {
        let mixer = match &self.mixer {
            Mixer::Attention(attention) => attention.matrices().map(Matrix::weights).sum(),
            Mixer::Latent(latent) => latent.weights(),
            Mixer::Delta(delta) => delta.matrices().map(Matrix::weights).iter().sum::<u64>(),
        };
        let feed = match &self.feed {
            Feed::Dense(gated) => gated.weights(),
            Feed::Experts(experts) => experts.weights(),
        };
        let token = self.token_input.as_ref().map_or(0, |input| input.gate.weights() + input.project.weights());
        mixer + feed + token
    }

    /// Values cached of a position.
    #[must_use]
    pub fn cached_values(&self) -> u64 {
        match &self.mixer {
            Mixer::Attention(attention) => attention.cached_values(),
            Mixer::Latent(latent) => (latent.rank + latent.rotated) as u64,
            Mixer::Delta(_) => 0,
        }
    }

    /// Its experts.
    #[must_use]
    pub fn experts(&self) -> Option<&Experts> {
        match &self.feed {
            Feed::Experts(experts) => Some(experts),
            Feed::Dense(_) => None,
        }
    }

    /// Its latent attention.
    #[must_use]
    pub fn latent(&self) -> Option<&Latent> {
        match &self.mixer {
            Mixer::Latent(latent) => Some(latent),
            _ => None,
        }
    }

    fn widen(&self, widths: &mut PassWidths, has_experts: bool) {
        let at_least = |width: &mut usize, value: usize| *width = value.max(*width);
        match &self.mixer {
            Mixer::Attention(attention) => {
                let queries = attention.heads * attention.key_width;
                at_least(&mut widths.heads, attention.heads);
                at_least(&mut widths.queries, queries);
                at_least(&mut widths.answers, attention.heads * attention.value_width);
            }
            Mixer::Latent(latent) => {
                let row = latent.rank + latent.rotated;
                // queries before and after they read latents, and three forms of a row
                let queries = latent.heads * (latent.plain + 2 * latent.rotated) + (latent.heads + 3) * row;
                at_least(&mut widths.heads, latent.heads);
                at_least(&mut widths.queries, queries);
                at_least(&mut widths.answers, latent.heads * latent.rank);
            }
            // the projections exist as tensors and as lists
            Mixer::Delta(Delta { shape, .. }) => {
                at_least(&mut widths.other, 2 * shape.channels() + 3 * shape.value_width());
            }
        }
        match &self.feed {
            Feed::Dense(gated) if has_experts => at_least(&mut widths.dense_ffn, gated.width()),
            Feed::Dense(gated) => at_least(&mut widths.ffn, gated.width()),
            Feed::Experts(experts) => {
                let shared = experts.shared.as_ref().map_or(0, |shared| shared.feed.width());
                let beside = experts.beside.as_ref().map_or(0, |beside| beside.dense.width());
                at_least(&mut widths.ffn, experts.sizes.width.max(shared).max(beside));
                widths.has_experts = true;
            }
        }
    }
}

impl Attention {
    /// Its matrices.
    pub fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        let own = match &self.keys {
            Keys::Own(own) => [Some(&own.k), own.v.as_ref()],
            Keys::OfLayer(_) | Keys::OfTarget => [None, None],
        };
        [Some(&self.q), Some(&self.o), self.gate.as_ref()].into_iter().chain(own).flatten()
    }

    /// Values cached of a position.
    #[must_use]
    pub fn cached_values(&self) -> u64 {
        match self.keys {
            Keys::Own(_) => (self.kv_heads * (self.key_width + self.value_width)) as u64,
            Keys::OfLayer(_) | Keys::OfTarget => 0,
        }
    }
}

impl Latent {
    fn weights(&self) -> u64 {
        let queries = match &self.queries {
            LatentQueries::Direct(q) => q.weights(),
            LatentQueries::Squeezed(down, _, up) => down.weights() + up.weights(),
        };
        let folded = [&self.to_keys, &self.to_values].map(Folded::weights).iter().sum::<u64>();
        queries + self.kv.weights() + folded + self.o.weights()
    }
}

impl Delta {
    fn matrices(&self) -> [&Matrix; 5] {
        [&self.mixed, &self.gate, &self.alpha, &self.beta, &self.o]
    }
}

impl Experts {
    /// Weights of experts, router, shared expert and dense layer.
    #[must_use]
    pub fn weights(&self) -> u64 {
        let gate = |matrix: &Option<Matrix>| matrix.as_ref().map_or(0, Matrix::weights);
        let shared = self.shared.as_ref().map_or(0, |shared| shared.feed.weights() + gate(&shared.gate));
        let beside = self.beside.as_ref().map_or(0, |beside| beside.dense.weights());
        self.sizes.weights() + self.router.weight.weights() + shared + beside
    }

    /// Weights of the experts that do not run for a position.
    #[must_use]
    pub fn idle_weights(&self) -> u64 {
        let all = self.sizes.weights();
        all - all / self.sizes.count as u64 * self.used as u64
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::load::OpenModel;

    /// Weights, values cached of a position, bytes of states, weights of tables whose rows are looked up, draft modules found
    /// and announced; weights that a token meets where there are experts. They were worked out before there were plans, by
    /// formulas of each family's own.
    const EXPECTED: &[(&str, [u64; 6], Option<u64>)] = &[
        ("deepseek", [106496, 80, 0, 0, 3, 3], Some(56320)),
        ("deepseek2-lite.gguf", [84672, 80, 0, 0, 0, 0], Some(62144)),
        ("gemma3.gguf", [614400, 448, 0, 0, 0, 0], None),
        ("gemma3", [184320, 384, 0, 0, 0, 0], None),
        ("gemma4-experts.gguf", [56576, 128, 0, 0, 0, 0], Some(44288)),
        ("gemma4-unified", [100352, 256, 0, 0, 0, 0], None),
        ("gemma4", [253952, 320, 0, 61440, 0, 0], None),
        ("glm4-flash", [122880, 144, 0, 0, 1, 1], Some(79872)),
        ("glm4moe.gguf", [44160, 128, 0, 0, 1, 1], Some(38016)),
        ("llama.gguf", [950272, 512, 0, 0, 0, 0], None),
        ("llama", [126976, 256, 0, 0, 0, 0], None),
        ("mimo", [102400, 128, 0, 0, 1, 1], None),
        ("qwen3", [106496, 256, 0, 0, 0, 0], None),
        ("qwen35", [107520, 64, 11264, 0, 1, 1], None),
        ("qwen35moe", [70336, 64, 5632, 0, 1, 1], Some(45760)),
        ("qwen3moe", [53568, 128, 0, 0, 0, 0], Some(35136)),
        ("qwen3next.gguf", [68160, 64, 5632, 0, 1, 1], Some(45632)),
    ];

    #[test]
    fn numbers_of_the_fixtures_are_those_that_families_worked_out() {
        for (name, numbers, active) in EXPECTED {
            let path =
                Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/fixtures/checkpoints").join(name);
            let opened = OpenModel::open(&path).unwrap();
            let plan = opened.config.plan();
            let found = [
                plan.weights(),
                plan.cached_values(),
                plan.state_bytes(),
                plan.looked_up_weights(),
                plan.modules.len() as u64,
                plan.announced_modules as u64,
            ];
            assert_eq!(found, *numbers, "{name}");
            assert_eq!(plan.is_large().then(|| plan.active_weights()), *active, "{name}");
        }
    }
}
