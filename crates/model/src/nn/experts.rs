//! Experts of a feed-forward layer: gated layers of equal shape, of which each row runs some.
//!
//! A file stacks the matrices of all experts in one tensor, or has a tensor for each. Invariant: the weighted results of a
//! row are added in the order of the experts' numbers, so they depend on that row's choice alone; each chosen expert is
//! read once, however many rows chose it.

use std::collections::BTreeMap;
use std::sync::Arc;

use candle_core::{Device, Tensor};
use draftscope_kernels::Encoding;

use crate::ModelError;
use crate::files::{Stored, TensorSource};
use crate::nn::feed_forward::{Activation, Gated};
use crate::nn::linear::Linear;
use crate::options::WeightType;

/// The experts of a row and the weights of their results, ascending by number.
pub type Choice = Vec<(usize, f32)>;

/// Sizes of the experts of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertSizes {
    /// Number of experts.
    pub count: usize,
    /// Width of the model.
    pub d: usize,
    /// Width of an expert.
    pub width: usize,
}

impl ExpertSizes {
    /// Weights of all experts.
    #[must_use]
    pub fn weights(&self) -> u64 {
        3 * [self.count, self.d, self.width].map(|n| n as u64).iter().product::<u64>()
    }
}

/// Which matrix of an expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertMatrix {
    /// `[width, d]`
    Gate,
    /// `[width, d]`
    Up,
    /// `[d, width]`
    Down,
}

/// Names of the tensors of a layer's experts.
#[derive(Clone, Debug)]
pub enum ExpertNames {
    /// Gate and up `[count, width, d]`, down `[count, d, width]`.
    Stacked([String; 3]),
    /// Gate and up in one tensor, `[count, 2 · width, d]`, gate first; down `[count, d, width]`.
    Joined([String; 2]),
    /// Gate, up and down of each expert.
    Single(Vec<[String; 3]>),
}

impl ExpertNames {
    pub(crate) fn all(&self) -> impl Iterator<Item = &String> {
        let (few, many): (&[String], &[[String; 3]]) = match self {
            Self::Stacked(names) => (names, &[]),
            Self::Joined(names) => (names, &[]),
            Self::Single(names) => (&[], names),
        };
        few.iter().chain(many.as_flattened())
    }
}

/// The matrices of a layer's experts as a file stores them.
#[derive(Debug)]
pub struct StoredExperts<'a> {
    names: &'a ExpertNames,
    sizes: ExpertSizes,
    tensors: Vec<Stored<'a>>,
}

impl<'a> StoredExperts<'a> {
    /// Finds them, with their shapes checked.
    ///
    /// # Errors
    /// When a tensor is missing, misshapen, or of a type that is not supported.
    pub fn find(source: &'a dyn TensorSource, names: &'a ExpertNames, sizes: ExpertSizes) -> Result<Self, ModelError> {
        let stored = |(name, shape): (&String, Vec<usize>)| source.stored(name, &shape);
        Self::of(names, sizes, names.all().zip(Self::shapes(names, sizes)).map(stored).collect::<Result<Vec<_>, _>>()?)
    }

    /// The shapes of the tensors, in the order of their names.
    pub(crate) fn shapes(names: &ExpertNames, sizes: ExpertSizes) -> Vec<Vec<usize>> {
        let ExpertSizes { count, d, width } = sizes;
        match names {
            ExpertNames::Stacked(_) => vec![vec![count, width, d], vec![count, width, d], vec![count, d, width]],
            ExpertNames::Joined(_) => vec![vec![count, 2 * width, d], vec![count, d, width]],
            ExpertNames::Single(names) => {
                names.iter().flat_map(|_| [vec![width, d], vec![width, d], vec![d, width]]).collect()
            }
        }
    }

    /// Tensors of the right shapes, in the order of their names.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] if a row is no whole number of blocks.
    pub(crate) fn of(names: &'a ExpertNames, sizes: ExpertSizes, tensors: Vec<Stored<'a>>) -> Result<Self, ModelError> {
        let ExpertSizes { d, width, .. } = sizes;
        let found = Self { names, sizes, tensors };
        let sides = [(ExpertMatrix::Gate, d), (ExpertMatrix::Up, d), (ExpertMatrix::Down, width)];
        let fits = |expert| {
            sides.iter().all(|(matrix, columns)| found.encoding(expert, *matrix).row_bytes(*columns).is_some())
        };
        if (0..sizes.count).all(fits) {
            return Ok(found);
        }
        let name = names.all().next().cloned().unwrap_or_default();
        Err(ModelError::Unsupported(format!("the experts of tensor '{name}' are no whole blocks of its type")))
    }

    /// The form in which they are loaded "as stored": FP8 becomes bf16.
    #[must_use]
    pub fn compact(self) -> Self {
        Self { tensors: self.tensors.into_iter().map(Stored::compact).collect(), ..self }
    }

    /// Sizes.
    #[must_use]
    pub fn sizes(&self) -> ExpertSizes {
        self.sizes
    }

    /// How a matrix of an expert is stored.
    #[must_use]
    pub fn encoding(&self, expert: usize, matrix: ExpertMatrix) -> Encoding {
        self.tensors[self.place(expert, matrix).0].encoding()
    }

    /// A matrix of an expert.
    #[must_use]
    pub fn matrix(&self, expert: usize, matrix: ExpertMatrix) -> Stored<'_> {
        let (tensor, part, parts) = self.place(expert, matrix);
        self.tensors[tensor].part(part, parts)
    }

    /// The bytes of a matrix of an expert.
    #[must_use]
    pub fn bytes(&self, expert: usize, matrix: ExpertMatrix) -> &[u8] {
        let (tensor, part, parts) = self.place(expert, matrix);
        self.tensors[tensor].bytes_of_part(part, parts)
    }

    /// Index of the tensor, and which of how many equal parts of it.
    fn place(&self, expert: usize, matrix: ExpertMatrix) -> (usize, usize, usize) {
        let count = self.sizes.count;
        match (self.names, matrix) {
            (ExpertNames::Stacked(_), matrix) => (matrix as usize, expert, count),
            (ExpertNames::Joined(_), ExpertMatrix::Gate) => (0, 2 * expert, 2 * count),
            (ExpertNames::Joined(_), ExpertMatrix::Up) => (0, 2 * expert + 1, 2 * count),
            (ExpertNames::Joined(_), ExpertMatrix::Down) => (1, expert, count),
            (ExpertNames::Single(_), matrix) => (3 * expert + matrix as usize, 0, 1),
        }
    }

    /// A matrix of an expert on candle.
    fn linear(
        &self,
        expert: usize,
        matrix: ExpertMatrix,
        weight_type: WeightType,
        device: &Device,
    ) -> Result<Linear, ModelError> {
        let ExpertSizes { d, width, .. } = self.sizes;
        let shape = if matrix == ExpertMatrix::Down { [d, width] } else { [width, d] };
        let stored = self.matrix(expert, matrix);
        if weight_type == WeightType::Stored {
            stored.check_candle(self.names.all().next().map_or("", String::as_str))?;
        }
        Ok(Linear::new(stored, shape, weight_type, device)?.one_by_one())
    }
}

/// The experts of a layer.
#[derive(Clone, Debug)]
pub struct Experts {
    sizes: ExpertSizes,
    each: Arc<Vec<Gated>>,
}

impl Experts {
    /// Experts that were not read: nothing runs on them.
    pub(crate) fn unread(sizes: ExpertSizes) -> Self {
        Self { sizes, each: Arc::default() }
    }

    /// Reads experts.
    ///
    /// # Errors
    /// When memory is short, or candle does not decode the type.
    pub fn read(
        stored: &StoredExperts<'_>,
        activation: Activation,
        (weight_type, device): (WeightType, &Device),
    ) -> Result<Self, ModelError> {
        let sizes = stored.sizes();
        let gated = |expert: usize| {
            Gated::read((sizes.d, sizes.width), activation, |part, _, _| {
                let matrix = match part {
                    "gate" => ExpertMatrix::Gate,
                    "up" => ExpertMatrix::Up,
                    _ => ExpertMatrix::Down,
                };
                stored.linear(expert, matrix, weight_type, device)
            })
        };
        Ok(Self { sizes, each: Arc::new((0..sizes.count).map(gated).collect::<Result<Vec<_>, _>>()?) })
    }

    /// `[m, d] -> [m, d]`: the weighted sum of each row's experts; `chosen` has an entry for each row.
    ///
    /// # Errors
    /// When shapes do not fit.
    pub fn forward(&self, x: &Tensor, chosen: &[Choice]) -> Result<Tensor, ModelError> {
        let mut out = x.zeros_like()?;
        for (expert, rows) in by_expert(chosen) {
            let count = rows.len();
            let (rows, weights): (Vec<u32>, Vec<f32>) =
                rows.into_iter().map(|(row, weight)| (row as u32, weight)).unzip();
            let rows = Tensor::from_vec(rows, count, x.device())?;
            let weights = Tensor::from_vec(weights, (count, 1), x.device())?;
            let answers = self.each[expert].forward(&x.index_select(&rows, 0)?)?.broadcast_mul(&weights)?;
            out = out.index_add(&rows, &answers, 0)?;
        }
        Ok(out)
    }

    /// Number of experts.
    #[must_use]
    pub fn count(&self) -> usize {
        self.sizes.count
    }

    /// Bytes of all experts in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.each.iter().map(Gated::bytes).sum()
    }
}

/// The rows of each chosen expert and their weights: experts and rows ascending.
#[must_use]
pub fn by_expert(chosen: &[Choice]) -> BTreeMap<usize, Vec<(usize, f32)>> {
    let mut rows_of = BTreeMap::<usize, Vec<(usize, f32)>>::new();
    for (row, choice) in chosen.iter().enumerate() {
        for (expert, weight) in choice {
            rows_of.entry(*expert).or_default().push((row, *weight));
        }
    }
    rows_of
}

/// A clause on how many different experts of a layer a pass of several rows meets, if rows chose independently and
/// uniformly: `count · (1 − (1 − used / count)^m)`. Rows of one text choose alike, so a measured pass meets fewer.
#[must_use]
pub fn expected_experts(count: usize, used: usize) -> String {
    let met = |rows: i32| count as f64 * (1.0 - (1.0 - used as f64 / count as f64).powi(rows));
    format!("4 rows that choose independently meet {:.0} experts a layer, 8 rows {:.0}", met(4), met(8))
}

/// Indices of the largest candidates, best first; of equal ones the first.
#[must_use]
pub fn best_of(values: &[f32], candidates: impl Iterator<Item = usize>, count: usize) -> Vec<usize> {
    let mut places: Vec<usize> = candidates.collect();
    places.sort_by(|a, b| values[*b].total_cmp(&values[*a]).then(a.cmp(b)));
    places.truncate(count);
    places
}
