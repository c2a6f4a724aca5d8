//! Reads what a plan names.

use std::cell::Cell;

use crate::ModelError;
use crate::nn::{Experts, Gated, HeadMatrix, HeadShape, Linear, RmsNorm, Tensors};
use crate::options::WeightType;
use crate::plan::{self, Folded, GatedFeed, Matrix, Norm};

/// Says what is not interpreted.
pub(super) fn unsupported(what: &str) -> ModelError {
    ModelError::Unsupported(format!("the reference does not run {what}"))
}

/// Reads tensors and counts their bytes.
pub(crate) struct Reader<'a> {
    pub(super) tensors: &'a Tensors<'a>,
    /// Whether norms are read as they are stored, whatever the plan says of their form.
    norms_as_stored: bool,
    bytes: Cell<u64>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(tensors: &'a Tensors<'a>) -> Self {
        Self { tensors, norms_as_stored: false, bytes: Cell::new(0) }
    }

    /// One for a draft module, whose conventions say what its norms mean.
    pub(crate) fn of_module(tensors: &'a Tensors<'a>) -> Self {
        Self { norms_as_stored: true, ..Self::new(tensors) }
    }

    /// Bytes that everything read so far takes in memory.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Adds bytes to those read so far.
    pub(super) fn count(&self, bytes: u64) {
        self.bytes.set(self.bytes() + bytes);
    }

    /// A matrix; few rows are multiplied with it one by one.
    ///
    /// # Errors
    /// When its tensor is missing, misshapen or damaged, or there are several.
    pub(crate) fn matrix(&self, of: &Matrix) -> Result<Linear, ModelError> {
        let [first, rest @ ..] = of.stored.as_slice() else { return Err(unsupported("matrices without rows")) };
        if rest.iter().any(|rows| rows.tensor != first.tensor) {
            return Err(unsupported("matrices in several tensors"));
        }
        let (name, stored) = (&first.tensor.name, first.stored());
        let mut linear = match (rest.is_empty() && first.is_whole(), stored) {
            (true, 1) => self.tensors.linear_row(name, of.columns)?,
            (true, _) => self.tensors.linear(name, stored, of.columns)?,
            (false, _) => {
                let places: Vec<usize> = of.stored.iter().flat_map(plan::Rows::places).collect();
                self.tensors.linear_rows(name, (stored, of.columns), &places)?
            }
        };
        self.tensors.source.release(name);
        if let Some(bias) = &of.bias {
            linear = linear.with_bias(self.tensors.vector(&bias.name, bias.len)?);
        }
        self.count(linear.bytes());
        Ok(linear.one_by_one())
    }

    /// The matrix that gives a number for each expert: it is f32 whatever the other matrices are, since it decides which
    /// experts run.
    pub(super) fn router(&self, of: &Matrix) -> Result<Linear, ModelError> {
        let linear = self.tensors.linear_as(of.name(), [of.rows, of.columns], WeightType::F32)?;
        self.count(linear.bytes());
        Ok(linear.one_by_one())
    }

    /// A norm of rows of `width` numbers.
    ///
    /// # Errors
    /// When its tensor is missing, misshapen or damaged.
    pub(crate) fn norm(&self, of: &Norm, width: usize) -> Result<RmsNorm, ModelError> {
        let of = Norm { centred: of.centred && !self.norms_as_stored, ..of.clone() };
        if let Some(weight) = of.weight.as_ref().filter(|_| !of.centred) {
            self.tensors.check_norm(&weight.name, width)?;
        }
        let norm = RmsNorm::of_numbers(of.read(self.tensors.source, width)?, of.eps, self.tensors.device)?;
        self.count(if of.weight.is_some() { norm.bytes() } else { 0 });
        Ok(norm)
    }

    /// A gated layer.
    pub(super) fn gated(&self, of: &GatedFeed) -> Result<Gated, ModelError> {
        let matrix = |part: &str, _, _| match part {
            "gate" => self.matrix(&of.gate),
            "up" => self.matrix(&of.up),
            _ => self.matrix(&of.down),
        };
        Gated::read((of.down.rows, of.width()), of.act, matrix)
    }

    /// The experts of a layer without what chooses them.
    pub(super) fn experts(&self, of: &plan::Experts) -> Result<Experts, ModelError> {
        of.check(self.tensors.source)?;
        let experts = self.tensors.experts(&of.names(), of.sizes, of.act)?;
        self.count(experts.bytes());
        Ok(experts)
    }

    /// A matrix of each head, f32.
    pub(super) fn folded(&self, of: &Folded) -> Result<HeadMatrix, ModelError> {
        let (files, rows) = (self.tensors.source, &of.stored);
        let (name, shape) = (&rows.tensor.name, &rows.tensor.shape);
        if self.tensors.is_unread() {
            files.check(name, shape)?;
            return HeadMatrix::unread(self.tensors.device);
        }
        let mut stored = files.stored(name, shape)?;
        if !rows.is_whole() {
            let columns = shape.last().copied().unwrap_or(0);
            stored = stored.rows([rows.stored(), columns], &rows.places().collect::<Vec<_>>())?;
        }
        if of.transposed {
            stored = stored.transposed(of.heads, [of.columns, of.out])?;
        }
        let shape = HeadShape { heads: of.heads, out: of.out, input: of.columns };
        let matrix = HeadMatrix::read(&stored, shape, self.tensors.device)?;
        files.release(name);
        self.count(matrix.bytes());
        Ok(matrix)
    }

    /// A tensor of one number.
    pub(super) fn number(&self, name: &str) -> Result<f64, ModelError> {
        Ok(self.tensors.source.vector(name, 1)?.first().copied().map_or(1.0, f64::from))
    }
}
