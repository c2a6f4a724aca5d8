//! A weight matrix in device memory, cut into parts where it is larger than a kernel can see at once.

use draftscope_kernels::{BLOCK, Encoding};

use crate::GpuError;
use crate::device::Gpu;
use crate::forms::{Form, PackedRows};

/// Rows of a matrix as a file stores them.
#[derive(Clone, Copy)]
pub struct StoredRows<'a> {
    /// How numbers are stored.
    pub encoding: Encoding,
    /// The bytes, in whole rows.
    pub bytes: &'a [u8],
    /// For each row of the matrix its place among the stored rows.
    pub order: &'a dyn Fn(usize) -> usize,
    /// Rows that are taken.
    pub rows: usize,
}

/// `[rows, k]` weights.
#[derive(Clone, Debug)]
pub struct Matrix {
    pub(crate) rows: usize,
    pub(crate) k: usize,
    pub(crate) parts: Vec<Part>,
}

/// Consecutive rows of a matrix in one form.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) form: Form,
    pub(crate) first: usize,
    pub(crate) rows: usize,
    pub(crate) codes: wgpu::Buffer,
    pub(crate) scales: wgpu::Buffer,
}

impl Matrix {
    /// Packs and uploads rows of `k` columns, those of one source below those of another, each in its own encoding's
    /// form. `k` must be whole blocks.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`] or what the driver reports.
    pub fn upload(gpu: &Gpu, k: usize, sources: &[StoredRows<'_>]) -> Result<Self, GpuError> {
        let mut matrix = Self { rows: 0, k, parts: Vec::new() };
        for sources in sources.chunk_by(|a, b| a.encoding == b.encoding) {
            let form = sources.first().map_or(Form::Wide, |source| Form::Of(source.encoding));
            matrix.push(gpu, form, sources);
        }
        gpu.check()?;
        Ok(matrix)
    }

    /// The same, all in the one form that stores all of these encodings: the form of another matrix.
    ///
    /// # Errors
    /// As [`Matrix::upload`].
    pub fn upload_as(
        gpu: &Gpu,
        (k, encodings): (usize, &[Encoding]),
        sources: &[StoredRows<'_>],
    ) -> Result<Self, GpuError> {
        let mut matrix = Self { rows: 0, k, parts: Vec::new() };
        matrix.push(gpu, Form::of_all(encodings), sources);
        gpu.check()?;
        Ok(matrix)
    }

    /// Adds rows in one form, cut where a kernel could not see them at once.
    fn push(&mut self, gpu: &Gpu, form: Form, sources: &[StoredRows<'_>]) {
        let all: Vec<_> =
            sources.iter().flat_map(|source| (0..source.rows).map(move |row| (source, (source.order)(row)))).collect();
        for rows in all.chunks(rows_of_part(gpu, form, self.k)) {
            let mut packed = PackedRows::default();
            for (source, row) in rows {
                let len = source.encoding.row_bytes(self.k).unwrap_or(0);
                packed.push(form, source.encoding, source.bytes.get(row * len..(row + 1) * len).unwrap_or(&[]));
            }
            let (codes, scales) = (gpu.upload(&packed.codes), gpu.upload(&packed.scales));
            self.parts.push(Part { form, first: self.rows, rows: rows.len(), codes, scales });
            self.rows += rows.len();
            gpu.flush();
        }
    }

    /// Room for rows that are copied from a matrix of the same form.
    ///
    /// # Errors
    /// As [`Matrix::upload`]; [`GpuError::TooLarge`] if the rows are more than a kernel can see at once.
    pub fn room(gpu: &Gpu, like: &Self, rows: usize) -> Result<Self, GpuError> {
        let form = like.form();
        let most = rows_of_part(gpu, form, like.k);
        if rows > most {
            return Err(GpuError::TooLarge {
                what: format!("a draft head of {rows} tokens"),
                bytes: (rows * form.row_bytes(like.k)) as u64,
                most: gpu.part_bytes(),
                smaller: format!("--draft-vocab {most} or less"),
            });
        }
        let codes = gpu.storage(rows * form.code_words(like.k) * size_of::<u32>());
        let scales = gpu.storage(rows * form.scale_words(like.k) * size_of::<u32>());
        gpu.check()?;
        Ok(Self { parts: vec![Part { form, first: 0, rows, codes, scales }], rows, k: like.k })
    }

    /// A copy of some rows, in this order.
    ///
    /// # Errors
    /// As [`Matrix::room`].
    pub fn select(&self, gpu: &Gpu, rows: &[usize]) -> Result<Self, GpuError> {
        let selected = Self::room(gpu, self, rows.len())?;
        let mut encoder = gpu.encoder();
        for (to, from) in rows.iter().enumerate() {
            selected.copy_row(&mut encoder, (self, *from), to);
        }
        gpu.submit(encoder);
        gpu.check()?;
        Ok(selected)
    }

    /// Copies row `from` of `source` to row `to`, both in one form; nothing happens if one of them does not exist.
    pub(crate) fn copy_row(&self, encoder: &mut wgpu::CommandEncoder, (source, from): (&Self, usize), to: usize) {
        let part = source.parts.iter().find(|part| (part.first..part.first + part.rows).contains(&from));
        let (Some(part), Some(own)) = (part, self.parts.first().filter(|own| to < own.rows)) else {
            return;
        };
        let (codes, scales) = (own.form.code_words(self.k), own.form.scale_words(self.k));
        let copies = [(&part.codes, &own.codes, codes), (&part.scales, &own.scales, scales)];
        for (there, here, words) in copies {
            let bytes = (size_of::<u32>() * words) as u64;
            if bytes > 0 {
                let (from, to) = ((from - part.first) as u64 * bytes, to as u64 * bytes);
                encoder.copy_buffer_to_buffer(there, from, here, to, bytes);
            }
        }
    }

    /// Rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How its weights are stored: the first of them, if they differ.
    #[must_use]
    pub fn form(&self) -> Form {
        self.parts.first().map_or(Form::Wide, |part| part.form)
    }

    /// Bytes in device memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| (part.rows * part.form.row_bytes(self.k)) as u64).sum()
    }
}

/// Rows that a kernel can see at once, in whole blocks of outputs.
fn rows_of_part(gpu: &Gpu, form: Form, k: usize) -> usize {
    let of_row = (form.code_words(k).max(form.scale_words(k)) * size_of::<u32>()).max(1);
    let most = usize::try_from(gpu.part_bytes()).unwrap_or(usize::MAX) / of_row;
    (most / BLOCK * BLOCK).max(BLOCK)
}
