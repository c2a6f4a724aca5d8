//! Checkpoint fixtures made large: the same layers with wider matrices, so that a hundredth of them means something. Weights
//! are one row again and again, valid and quickly written.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use candle_core::Device;
use candle_core::quantized::gguf_file::{Content, Value as GgufValue};
use candle_core::quantized::{QStorage, QTensor, gguf_file};
use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};
use serde_json::{Map, Value, json};

use super::checkpoint;

type Keys = &'static [(&'static str, usize)];
type Parts = &'static [(&'static str, &'static [usize])];

/// How a family's fixture grows.
pub struct Growth {
    pub fixture: &'static str,
    /// Keys of the configuration that are multiplied; those of GGUF files without the architecture.
    pub keys: &'static [Keys],
    /// Parts of tensors' names, and the factor of each dimension; the first that matches counts.
    pub parts: &'static [Parts],
    /// Of the dimensions of all other tensors.
    pub factor: usize,
    /// Numbers of the first dimension, or of a GGUF file's key, that do not grow, by a part of the name.
    pub rest: &'static [(&'static str, usize)],
}

/// Positions of grown models.
pub const CONTEXT: usize = 532;

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

pub static GEMMA3: Growth = Growth {
    fixture: "gemma3",
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

/// Experts and attention of a family with rotary heads; the experts' matrices grow in both dimensions.
const EXPERT_BLOCK: Parts = &[
    ("embed_tokens", &[1, EXPERTS_WIDE]),
    ("lm_head", &[1, EXPERTS_WIDE]),
    ("mlp.gate.weight", &[1, EXPERTS_WIDE]),
    ("router.proj", &[1, EXPERTS_WIDE]),
    ("shared_expert_gate", &[1, EXPERTS_WIDE]),
    (".experts.gate_up_proj", &[1, EXPERTS_WIDE, EXPERTS_WIDE]),
    (".experts.down_proj", &[1, EXPERTS_WIDE, EXPERTS_WIDE]),
    ("q_norm", &[1]),
    ("k_norm", &[1]),
    ("q_proj", &[HEADS, EXPERTS_WIDE]),
    ("k_proj", &[HEADS, EXPERTS_WIDE]),
    ("v_proj", &[HEADS, EXPERTS_WIDE]),
    ("o_proj", &[EXPERTS_WIDE, HEADS]),
];

const EXPERT_SIZES: Keys = &[
    ("hidden_size", EXPERTS_WIDE),
    ("intermediate_size", EXPERTS_WIDE),
    ("moe_intermediate_size", EXPERTS_WIDE),
    ("shared_expert_intermediate_size", EXPERTS_WIDE),
    ("num_attention_heads", HEADS),
    ("num_key_value_heads", HEADS),
    ("num_global_key_value_heads", HEADS),
];

const EXPERTS_WIDE: usize = 60;

const fn experts(fixture: &'static str, parts: &'static [Parts], keys: &'static [Keys]) -> Growth {
    Growth { fixture, keys, parts, factor: EXPERTS_WIDE, rest: &[] }
}

pub static QWEN3_MOE: Growth = experts("qwen3moe", &[EXPERT_BLOCK], &[EXPERT_SIZES]);

pub static GLM4_MOE: Growth =
    experts("glm4moe", &[&[("e_score_correction_bias", &[1])], EXPERT_BLOCK], &[EXPERT_SIZES]);

pub static GEMMA4_EXPERTS: Growth = experts(
    "gemma4-experts",
    &[&[("vision", &[1, 1]), ("layer_scalar", &[1]), ("per_expert_scale", &[1])], EXPERT_BLOCK],
    &[EXPERT_SIZES],
);

const DELTA_KEYS: Keys = &[("linear_num_key_heads", HEADS), ("linear_num_value_heads", HEADS)];

const DELTA: Parts = &[
    ("linear_attn.norm", &[1]),
    ("conv1d", &[HEADS, 1, 1]),
    ("A_log", &[HEADS]),
    ("dt_bias", &[HEADS]),
    ("in_proj", &[HEADS, EXPERTS_WIDE]),
    ("out_proj", &[EXPERTS_WIDE, HEADS]),
];

pub static QWEN35_MOE: Growth = experts("qwen35moe", &[DELTA, EXPERT_BLOCK], &[EXPERT_SIZES, DELTA_KEYS]);

pub static QWEN3_NEXT: Growth = experts("qwen3next", &[DELTA, EXPERT_BLOCK], &[EXPERT_SIZES, DELTA_KEYS]);

/// Parts of files of the architecture `deepseek2`, whose latents' matrices are split.
const DEEPSEEK2_BLOCK: Parts = &[
    ("attn_output", &[EXPERTS_WIDE, 4]),
    ("token_embd", &[1, EXPERTS_WIDE]),
    ("output.weight", &[1, EXPERTS_WIDE]),
    ("exp_probs_b", &[1]),
    ("ffn_gate_inp", &[1, EXPERTS_WIDE]),
    ("_exps", &[1, EXPERTS_WIDE, EXPERTS_WIDE]),
    ("attn_q_b", &[4, EXPERTS_WIDE]),
    ("attn_q.weight", &[4, EXPERTS_WIDE]),
    ("attn_kv_b", &[4, EXPERTS_WIDE]),
    ("attn_k_b", &[4, EXPERTS_WIDE, 1]),
    ("attn_v_b", &[4, 1, EXPERTS_WIDE]),
];

const DEEPSEEK2_SIZES: Keys = &[
    ("embedding_length", EXPERTS_WIDE),
    ("feed_forward_length", EXPERTS_WIDE),
    ("expert_feed_forward_length", EXPERTS_WIDE),
    ("attention.q_lora_rank", EXPERTS_WIDE),
    ("attention.kv_lora_rank", EXPERTS_WIDE),
    ("attention.value_length", EXPERTS_WIDE),
    ("attention.key_length", EXPERTS_WIDE),
    ("attention.head_count", 4),
];

const fn deepseek2(fixture: &'static str) -> Growth {
    let rest = &[("attn_kv_a_mqa", 8), ("key_length", 8)]; // rotated values
    Growth { fixture, keys: &[DEEPSEEK2_SIZES], parts: &[DEEPSEEK2_BLOCK], factor: EXPERTS_WIDE, rest }
}

/// Quantised in several types, without a module.
pub static DEEPSEEK2: Growth = deepseek2("deepseek2.gguf");

/// In bf16, with a module.
pub static GLM4_FLASH: Growth = deepseek2("glm4-flash-native.gguf");

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

    /// Writes the large checkpoint, or GGUF file, and gives its path.
    pub fn make(&self) -> (tempfile::TempDir, PathBuf) {
        if self.fixture.ends_with(".gguf") {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(self.fixture);
            self.make_gguf(&path);
            return (folder, path);
        }
        let folder = self.make_folder();
        let path = folder.path().to_owned();
        (folder, path)
    }

    /// Each tensor of the large file is the first block of the small one's, again and again.
    fn make_gguf(&self, path: &Path) {
        let mut file = File::open(checkpoint::path(self.fixture)).unwrap();
        let content = Content::read(&mut file).unwrap();
        let grown = content.tensor_infos.iter().map(|(name, info)| {
            let (dtype, shape) = (info.ggml_dtype, self.shape(name, info.shape.dims()));
            let mut block = vec![0; dtype.type_size()];
            file.seek(SeekFrom::Start(content.tensor_data_offset + info.offset)).unwrap();
            file.read_exact(&mut block).unwrap();
            let bytes = block.repeat(shape.iter().product::<usize>() / dtype.block_size());
            let storage = QStorage::from_data(Cow::Owned(bytes), &Device::Cpu, dtype).unwrap();
            (name.as_str(), QTensor::new(storage, shape).unwrap())
        });
        let tensors: Vec<_> = grown.collect();
        let keys: Vec<_> = content.metadata.iter().map(|(key, value)| (key.as_str(), self.value(key, value))).collect();
        let keys: Vec<_> = keys.iter().map(|(key, value)| (*key, value)).collect();
        let tensors: Vec<_> = tensors.iter().map(|(name, tensor)| (*name, tensor)).collect();
        gguf_file::write(&mut BufWriter::new(File::create(path).unwrap()), &keys, &tensors).unwrap();
    }

    fn value(&self, key: &str, value: &GgufValue) -> GgufValue {
        let own = key.split_once('.').map_or("", |(_, own)| own);
        let factor = self.keys.iter().copied().flatten().find(|(name, _)| *name == own);
        match (factor, value.to_u32()) {
            _ if own == "context_length" => GgufValue::U32(CONTEXT as u32),
            (Some((_, factor)), Ok(number)) => {
                let rest = self.rest.iter().find(|(part, _)| own.ends_with(part)).map_or(0, |(_, rest)| *rest as u32);
                GgufValue::U32((number - rest) * *factor as u32 + rest)
            }
            _ => value.clone(),
        }
    }

    fn make_folder(&self) -> tempfile::TempDir {
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
