//! Checkpoint fixtures made large: the same layers with wider matrices, so that a hundredth of them means something. Weights
//! are one row again and again, valid and quickly written.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};
use serde_json::{Map, Value, json};

use super::checkpoint;

type Keys = &'static [(&'static str, usize)];
type Parts = &'static [(&'static str, &'static [usize])];

/// How a family's fixture grows.
pub struct Growth {
    pub fixture: &'static str,
    /// Keys of the configuration that are multiplied.
    pub keys: &'static [Keys],
    /// Parts of tensors' names, and the factor of each dimension; the first that matches counts.
    pub parts: &'static [Parts],
    /// Of the dimensions of all other tensors.
    pub factor: usize,
    /// Numbers of the first dimension that do not grow, by a part of the name.
    pub rest: &'static [(&'static str, usize)],
}

/// Positions of grown models.
pub const CONTEXT: usize = 1024;

const WIDE: usize = 32;
const HEADS: usize = 8;

/// Sizes that every transformer has.
const SIZES: Keys = &[
    ("hidden_size", WIDE),
    ("intermediate_size", 3 * WIDE),
    ("num_attention_heads", HEADS),
    ("num_key_value_heads", HEADS),
];

/// Matrices that most blocks have.
const BLOCK: Parts = &[
    ("q_proj", &[HEADS, WIDE]),
    ("k_proj", &[HEADS, WIDE]),
    ("v_proj", &[HEADS, WIDE]),
    ("o_proj", &[WIDE, HEADS]),
    ("gate_proj", &[3 * WIDE, WIDE]),
    ("up_proj", &[3 * WIDE, WIDE]),
    ("down_proj", &[WIDE, 3 * WIDE]),
];

pub static QWEN35: Growth = Growth {
    fixture: "qwen35",
    keys: &[SIZES, &[("linear_num_key_heads", WIDE), ("linear_num_value_heads", WIDE)]],
    parts: &[
        &[
            ("visual", &[1]),
            ("embed_tokens", &[1, WIDE]),
            ("q_norm", &[1]),
            ("k_norm", &[1]),
            ("linear_attn.norm", &[1]),
            ("conv1d", &[WIDE, 1, 1]),
        ],
        BLOCK,
    ],
    factor: WIDE,
    rest: &[],
};

pub static MIMO: Growth = Growth {
    fixture: "mimo",
    keys: &[SIZES],
    parts: &[&[("embed_tokens", &[1, WIDE]), ("lm_head", &[1, WIDE])], BLOCK],
    factor: WIDE,
    rest: &[],
};

pub static QWEN3: Growth = Growth {
    fixture: "qwen3",
    keys: &[SIZES],
    parts: &[&[("embed_tokens", &[1, WIDE]), ("q_norm", &[1]), ("k_norm", &[1])], BLOCK],
    factor: WIDE,
    rest: &[],
};

pub static GEMMA4: Growth = Growth {
    fixture: "gemma4",
    keys: &[SIZES, &[("hidden_size_per_layer_input", HEADS)]],
    parts: &[
        &[
            ("vision", &[1, 1]),
            ("embed_tokens_per_layer", &[1, HEADS]),
            ("embed_tokens", &[1, WIDE]),
            ("q_norm", &[1]),
            ("k_norm", &[1]),
            ("layer_scalar", &[1]),
            ("per_layer_projection_norm", &[HEADS]),
            ("per_layer_model_projection", &[HEADS, WIDE]),
            ("per_layer_input_gate", &[HEADS, WIDE]),
            ("per_layer_projection", &[WIDE, HEADS]),
        ],
        BLOCK,
    ],
    factor: WIDE,
    rest: &[],
};

pub static ASSISTANT: Growth = Growth {
    fixture: "gemma4-assistant",
    keys: &[SIZES, &[("backbone_hidden_size", WIDE)]],
    parts: &[
        &[
            ("token_ordering", &[1]),
            ("centroids", &[1, WIDE]),
            ("embed_tokens", &[1, WIDE]),
            ("q_norm", &[1]),
            ("layer_scalar", &[1]),
        ],
        BLOCK,
    ],
    factor: WIDE,
    rest: &[],
};

const EXPERTS: usize = 40;

pub static DEEPSEEK: Growth = Growth {
    fixture: "deepseek",
    keys: &[&[
        ("hidden_size", EXPERTS),
        ("intermediate_size", EXPERTS),
        ("moe_intermediate_size", EXPERTS),
        ("kv_lora_rank", EXPERTS),
        ("q_lora_rank", EXPERTS),
        ("num_attention_heads", 4),
        ("num_key_value_heads", 4),
    ]],
    parts: &[&[
        ("embed_tokens", &[1, EXPERTS]),
        ("head.weight", &[1, EXPERTS]),
        ("e_score_correction_bias", &[1]),
        ("mlp.gate.weight", &[1, EXPERTS]),
        ("q_b_proj", &[4, EXPERTS]),
        ("kv_b_proj", &[4, EXPERTS]),
        ("o_proj", &[EXPERTS, 4]),
    ]],
    factor: EXPERTS,
    rest: &[("kv_a_proj_with_mqa", 8)], // rotated values
};

impl Growth {
    fn shape(&self, name: &str, shape: &[usize]) -> Vec<usize> {
        let factors = self.parts.iter().copied().flatten().find(|(part, _)| name.contains(part));
        let factor = |at: usize| factors.map_or(self.factor, |(_, factors)| factors[at.min(factors.len() - 1)]);
        let rest = self.rest.iter().find(|(part, _)| name.contains(part)).map_or(0, |(_, rest)| *rest);
        let grown = |(at, dim): (usize, &usize)| match at {
            0 => (dim - rest) * factor(0) + rest,
            _ => dim * factor(at),
        };
        shape.iter().enumerate().map(grown).collect()
    }

    /// Writes the large checkpoint.
    pub fn make(&self) -> tempfile::TempDir {
        let folder = checkpoint::copy(self.fixture);
        let path = folder.path();
        let (mut tensors, mut small) = (Vec::new(), Vec::new());
        for entry in std::fs::read_dir(path).unwrap() {
            let file = entry.unwrap().path();
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            if name.starts_with("model") && name.ends_with(".safetensors") {
                let bytes = std::fs::read(&file).unwrap();
                for (name, view) in SafeTensors::deserialize(&bytes).unwrap().tensors() {
                    let shape = self.shape(&name, view.shape());
                    let kept = (shape == view.shape()).then(|| view.data().to_vec());
                    small.push(kept);
                    tensors.push((name, view.dtype(), shape));
                }
            }
            if name.starts_with("model") || name.starts_with("golden") {
                std::fs::remove_file(&file).unwrap();
            }
        }
        write(&path.join("model.safetensors"), &tensors, &small);
        checkpoint::edit(path, "config.json", |config| {
            multiply(config, &self.keys.concat());
            set_context(config);
        });
        folder
    }
}

fn multiply(config: &mut Value, keys: &[(&str, usize)]) {
    let Some(fields) = config.as_object_mut() else { return };
    for (name, value) in fields {
        match (keys.iter().find(|(key, _)| key == name), value.as_u64()) {
            (Some((_, factor)), Some(number)) => *value = json!(number * *factor as u64),
            _ => multiply(value, keys),
        }
    }
}

fn set_context(config: &mut Value) {
    let Some(fields) = config.as_object_mut() else { return };
    for (name, value) in fields {
        match name.as_str() {
            "max_position_embeddings" => *value = json!(CONTEXT),
            _ => set_context(value),
        }
    }
}

fn write(path: &Path, tensors: &[(String, Dtype, Vec<usize>)], small: &[Option<Vec<u8>>]) {
    let (mut header, mut at) = (Map::new(), 0);
    for (name, dtype, shape) in tensors {
        let len = shape.iter().product::<usize>() * dtype.bitsize() / 8;
        let dtype = format!("{dtype:?}");
        header.insert(name.clone(), json!({"dtype": dtype, "shape": shape, "data_offsets": [at, at + len]}));
        at += len;
    }
    let mut header = Value::Object(header).to_string();
    header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
    let mut file = BufWriter::new(File::create(path).unwrap());
    file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    for ((name, dtype, shape), kept) in tensors.iter().zip(small) {
        if let Some(bytes) = kept {
            file.write_all(bytes).unwrap();
            continue;
        }
        let k = *shape.last().unwrap();
        let scale = if shape.len() > 1 { 1.0 / (k as f32).sqrt() } else { 0.5 };
        let row = (0..k).map(|i| ((i * 7919 % 1009) as f32 / 504.5 - 1.0) * scale);
        let row: Vec<u8> = match dtype {
            Dtype::BF16 => row.flat_map(|x| bf16::from_f32(x).to_le_bytes()).collect(),
            Dtype::F16 => row.flat_map(|x| f16::from_f32(x).to_le_bytes()).collect(),
            Dtype::F32 => row.flat_map(f32::to_le_bytes).collect(),
            other => panic!("{name} is {other:?}"),
        };
        for _ in 0..shape.iter().product::<usize>() / k {
            file.write_all(&row).unwrap();
        }
    }
    file.flush().unwrap();
}
