//! A weight matrix in device memory, cut into parts where it is larger than a kernel can see at once.

use draftscope_kernels::{BLOCK, Encoding};

use crate::GpuError;
use crate::device::Gpu;
use crate::form::{Form, PackedRows};

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
    pub(crate) form: Form,
    pub(crate) rows: usize,
    pub(crate) k: usize,
    pub(crate) parts: Vec<Part>,
}

/// Consecutive rows of a matrix.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) first: usize,
    pub(crate) rows: usize,
    pub(crate) codes: wgpu::Buffer,
    pub(crate) scales: wgpu::Buffer,
}

impl Matrix {
    /// Packs and uploads rows of `k` columns, those of one source below those of another. `k` must be whole blocks.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`] or what the driver reports.
    pub fn upload(gpu: &Gpu, k: usize, sources: &[StoredRows<'_>]) -> Result<Self, GpuError> {
        let encodings: Vec<_> = sources.iter().map(|source| source.encoding).collect();
        Self::upload_as(gpu, (k, &encodings), sources)
    }

    /// The same, in the form that stores all of these encodings: the form of another matrix.
    ///
    /// # Errors
    /// As [`Matrix::upload`].
    pub fn upload_as(
        gpu: &Gpu,
        (k, encodings): (usize, &[Encoding]),
        sources: &[StoredRows<'_>],
    ) -> Result<Self, GpuError> {
        let form = Form::of_all(encodings);
        let all: Vec<_> =
            sources.iter().flat_map(|source| (0..source.rows).map(move |row| (source, (source.order)(row)))).collect();
        let (mut parts, mut first) = (Vec::new(), 0);
        for rows in all.chunks(rows_of_part(gpu, form, k)) {
            let mut packed = PackedRows::default();
            for (source, row) in rows {
                let len = source.encoding.row_bytes(k).unwrap_or(0);
                packed.push(form, source.encoding, source.bytes.get(row * len..(row + 1) * len).unwrap_or(&[]));
            }
            let (codes, scales) = (gpu.upload(&packed.codes), gpu.upload(&packed.scales));
            parts.push(Part { first, rows: rows.len(), codes, scales });
            first += rows.len();
            gpu.flush();
        }
        gpu.check()?;
        Ok(Self { form, rows: all.len(), k, parts })
    }

    /// Room for rows that are copied from a matrix of the same form.
    ///
    /// # Errors
    /// As [`Matrix::upload`]; [`GpuError::OutOfMemory`] if the rows are more than a kernel can see at once.
    pub fn room(gpu: &Gpu, like: &Self, rows: usize) -> Result<Self, GpuError> {
        if rows > rows_of_part(gpu, like.form, like.k) {
            return Err(GpuError::OutOfMemory(format!("{rows} rows of a draft head are more than a kernel can see")));
        }
        let blocks = like.k / BLOCK * size_of::<u32>();
        let codes = gpu.storage(rows * blocks * like.form.code_words());
        let scales = gpu.storage(rows * blocks * like.form.scale_words());
        gpu.check()?;
        Ok(Self { parts: vec![Part { first: 0, rows, codes, scales }], rows, ..*like })
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

    /// Copies row `from` of `source` to row `to`; nothing happens if one of them does not exist.
    pub(crate) fn copy_row(&self, encoder: &mut wgpu::CommandEncoder, (source, from): (&Self, usize), to: usize) {
        let part = source.parts.iter().find(|part| (part.first..part.first + part.rows).contains(&from));
        let (Some(part), Some(own)) = (part, self.parts.first().filter(|own| to < own.rows)) else {
            return;
        };
        let blocks = self.k / BLOCK * size_of::<u32>();
        let copies =
            [(&part.codes, &own.codes, self.form.code_words()), (&part.scales, &own.scales, self.form.scale_words())];
        for (there, here, words) in copies {
            let bytes = (blocks * words) as u64;
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

    /// How its weights are stored.
    #[must_use]
    pub fn form(&self) -> Form {
        self.form
    }

    /// Bytes in device memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.rows * self.form.row_bytes(self.k)) as u64
    }
}

/// Rows that a kernel can see at once, in whole blocks of outputs.
fn rows_of_part(gpu: &Gpu, form: Form, k: usize) -> usize {
    let of_row = (k / BLOCK * form.code_words().max(form.scale_words()) * size_of::<u32>()).max(1);
    let most = usize::try_from(gpu.info().max_binding).unwrap_or(usize::MAX) / of_row;
    (most / BLOCK * BLOCK).max(BLOCK)
}
