//! GGUF files with older metadata, parts of split files, and unsupported families.

use std::collections::HashMap;
use std::fs;

use candle_core::Device;
use candle_core::quantized::QTensor;
use candle_core::quantized::gguf_file::{self, Value};

use crate::support::{
    Backend, Dtype, GgufSummary, LoadOptions, OpenModel, RopeScaling, TokenId, bare_options, open, path, refusal,
};

/// A GGUF fixture with other metadata.
pub fn rewritten(name: &str, change: impl FnOnce(&mut HashMap<String, Value>)) -> tempfile::NamedTempFile {
    rewritten_of(name, "nothing", change)
}

/// A GGUF fixture with other metadata and without the tensors whose names contain this.
pub fn rewritten_of(
    name: &str,
    without: &str,
    change: impl FnOnce(&mut HashMap<String, Value>),
) -> tempfile::NamedTempFile {
    written(name, (without, []), change)
}

/// A GGUF fixture with more tensors.
pub fn with_tensors<const N: usize>(name: &str, more: [(&str, QTensor); N]) -> tempfile::NamedTempFile {
    written(name, ("nothing", more), |_| {})
}

fn written<const N: usize>(
    name: &str,
    (without, more): (&str, [(&str, QTensor); N]),
    change: impl FnOnce(&mut HashMap<String, Value>),
) -> tempfile::NamedTempFile {
    let mut file = fs::File::open(path(name)).unwrap();
    let content = gguf_file::Content::read(&mut file).unwrap();
    let mut metadata = content.metadata.clone();
    change(&mut metadata);
    let names = content.tensor_infos.keys().filter(|name| !name.contains(without));
    let tensors: Vec<_> =
        names.map(|name| (name.as_str(), content.tensor(&mut file, name, &Device::Cpu).unwrap())).collect();
    let tensors: Vec<_> = tensors.iter().chain(&more).map(|(name, tensor)| (*name, tensor)).collect();
    let metadata: Vec<_> = metadata.iter().map(|(key, value)| (key.as_str(), value)).collect();
    let mut out = tempfile::NamedTempFile::new().unwrap();
    gguf_file::write(&mut out, &metadata, &tensors).unwrap();
    out
}

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

#[test]
fn a_missing_add_bos_token_has_the_default_of_llama_cpp() {
    for (name, begins) in [("llama.gguf", true), ("qwen3.gguf", false)] {
        let file = rewritten(name, |keys| drop(keys.remove("tokenizer.ggml.add_bos_token").unwrap()));
        let codec = OpenModel::open(file.path()).unwrap().codec().unwrap();
        let (raw, plain) = (codec.encode_raw("the").unwrap(), codec.encode("the").unwrap());
        assert_eq!(raw.len(), plain.len() + usize::from(begins), "{name}");
    }
}

#[test]
fn a_missing_pre_tokenizer_is_reported() {
    for (pre, says) in [(None, "'tokenizer.ggml.pre' is missing"), (Some("default"), "is 'default', so text is split")]
    {
        let file = rewritten("qwen3.gguf", |keys| {
            keys.remove("tokenizer.ggml.pre").unwrap();
            keys.extend(pre.map(|pre| ("tokenizer.ggml.pre".to_owned(), text(pre))));
        });
        let warnings = open(&bare_options(file.path().into(), Backend::Auto)).warnings;
        assert!(matches!(&warnings[..], [one] if one.contains(says)), "{warnings:?}");
    }
}

#[test]
fn end_tokens_that_the_metadata_does_not_list_are_found_by_name() {
    let file = rewritten("qwen3.gguf", |keys| {
        let Value::Array(types) = keys.get_mut("tokenizer.ggml.token_type").unwrap() else { panic!("no list") };
        types.fill(Value::I32(1)); // as if all were text
        keys.remove("tokenizer.ggml.eos_token_id");
        keys.insert("tokenizer.ggml.eom_token_id".to_owned(), Value::U32(5));
    });
    let codec = |path| OpenModel::open(path).unwrap().codec().unwrap();
    let (forgetful, whole) = (codec(file.path()), codec(&path("qwen3.gguf")));
    let (ends, own) = (forgetful.ends(), whole.ends());
    assert!(own.iter().all(|end| ends.contains(end)) && ends.len() == own.len() + 1, "{ends:?}");
    assert!(ends.contains(&TokenId(5)));
    for end in own {
        assert_eq!(forgetful.encode(&whole.piece(*end).lossy()).unwrap(), [*end], "its name in a prompt is one token");
        assert!(forgetful.piece(*end).special);
    }
}

#[test]
fn older_names_of_the_scaling_factor_are_read() {
    let cases: [(&[(&str, Value)], RopeScaling); 7] = [
        (&[], RopeScaling::Plain),
        (&[("scaling.factor", Value::F32(2.0))], RopeScaling::Linear(2.0)),
        (&[("scale_linear", Value::F32(4.0))], RopeScaling::Linear(4.0)),
        (&[("scaling.factor", Value::F32(2.0)), ("scale_linear", Value::F32(4.0))], RopeScaling::Linear(2.0)),
        (&[("scaling.type", text("linear")), ("scaling.factor", Value::F32(1.0))], RopeScaling::Plain),
        (&[("scaling.factor", Value::F32(0.0))], RopeScaling::Plain),
        (&[("scaling.type", text("none")), ("scaling.factor", Value::F32(2.0))], RopeScaling::Plain),
    ];
    for (keys, scaling) in cases {
        let file = rewritten("qwen3.gguf", |metadata| {
            metadata.extend(keys.iter().map(|(key, value)| (format!("qwen3.rope.{key}"), value.clone())));
        });
        assert_eq!(OpenModel::open(file.path()).unwrap().transformer().rope.scaling, scaling, "{keys:?}");
    }
    let both = rewritten("llama.gguf", |keys| drop(keys.insert("llama.rope.scale_linear".into(), Value::F32(2.0))));
    let error = OpenModel::open(both.path()).err().unwrap().to_string();
    assert!(error.contains("'rope_freqs.weight' together with a scaling factor"), "{error}");
}

#[test]
fn a_part_of_a_split_file_is_rejected_with_advice() {
    let of = |parts| {
        rewritten("qwen3.gguf", |keys| {
            keys.insert("split.count".to_owned(), Value::U16(parts));
            keys.insert("split.no".to_owned(), Value::U16(0));
        })
    };
    assert!(OpenModel::open(of(1).path()).is_ok());
    let error = refusal(&bare_options(of(3).path().into(), Backend::Auto));
    let is_named = error.contains("is part 1 of 3 of a split GGUF file") && error.contains("missing; download");
    assert!(is_named, "{error}");
}

/// `mixed.gguf` with another type for some of its matrices.
fn retyped(tensors: &[&str], kind: u32) -> tempfile::NamedTempFile {
    let mut bytes = fs::read(path("mixed.gguf")).unwrap();
    for name in tensors {
        let mut listed = (name.len() as u64).to_le_bytes().to_vec();
        listed.extend(name.as_bytes());
        listed.extend(2u32.to_le_bytes());
        let at = bytes.windows(listed.len()).position(|window| window == listed).unwrap() + listed.len() + 16;
        bytes[at..at + 4].copy_from_slice(&kind.to_le_bytes());
    }
    let out = tempfile::NamedTempFile::new().unwrap();
    fs::write(out.path(), bytes).unwrap();
    out
}

#[test]
fn a_tensor_of_a_type_that_does_not_run_is_named_with_its_type() {
    let (up, down) = ("blk.0.ffn_up.weight", "blk.0.ffn_down.weight");
    for (tensors, kind, says) in [
        (&[up][..], 21, "tensor 'blk.0.ffn_up.weight' is stored as IQ3_S, which is not supported;"),
        (
            &[up, down],
            16,
            "'blk.0.ffn_down.weight' is stored as IQ2_XXS, which is not supported (1 more tensor has such a type)",
        ),
        (&[up], 35, "is stored as TQ2_0"),
        (&[up], 99, "is stored as type 99"),
    ] {
        let file = retyped(tensors, kind);
        for backend in [Backend::Auto, Backend::Candle] {
            let error = refusal(&bare_options(file.path().into(), backend));
            assert!(error.contains(says) && error.contains("IQ4_NL, IQ4_XS and MXFP4 are"), "{error}");
        }
        let summary = GgufSummary::read(file.path()).unwrap();
        assert_eq!((summary.layers, summary.dtype.as_str()), (Some(1), "iq4_xs"));
        let [refused] = &summary.types.iter().filter(|share| !share.runs).collect::<Vec<_>>()[..] else {
            panic!("{:?}", summary.types)
        };
        assert_eq!((refused.tensors, refused.named[0].as_str()), (tensors.len(), tensors[tensors.len() - 1]));
        assert_eq!(refused.bytes.is_none(), kind == 99, "the size of an unknown type is unknown");
        let text = summary.to_string();
        assert!(text.contains("(does not run)") && text.contains(" is the type of blk.0.ffn_"), "{text}");
    }
    // whole numbers are no weights, so a tensor of them is rejected only where something reads it
    let file = retyped(&[up], 24);
    let error = refusal(&bare_options(file.path().into(), Backend::Native));
    assert!(error.contains(up) && error.contains("I8"), "{error}");
    assert!(OpenModel::open(&path("mixed.gguf")).is_ok());
}

#[test]
fn a_mixed_file_takes_as_much_memory_as_its_tensors_and_has_the_name_of_its_file_type() {
    let opened = OpenModel::open(&path("mixed.gguf")).unwrap();
    let loaded = open(&bare_options(path("mixed.gguf"), Backend::Native));
    let (info, stored) = (&loaded.target.spec().info, opened.source.tensor_bytes());
    assert_eq!(opened.source.stored_dtype(), "iq4_xs");
    assert!(info.weight_bytes <= stored + stored / 25, "{} bytes of {stored}", info.weight_bytes);
}

#[test]
fn candle_names_the_tensor_that_it_cannot_multiply_with_as_stored() {
    let options = LoadOptions { dtype: Dtype::Stored, ..bare_options(path("mixed.gguf"), Backend::Candle) };
    let error = refusal(&options);
    assert!(error.contains("'token_embd.weight'") && error.contains("iq4_nl") && error.contains("--dtype"), "{error}");
}

#[test]
fn a_file_of_an_unsupported_family_is_described_by_its_header() {
    let file = rewritten("llama.gguf", |keys| {
        keys.insert("general.architecture".into(), text("deepseek32"));
        for (key, number) in
            [("block_count", 48), ("embedding_length", 2048), ("expert_count", 64), ("nextn_predict_layers", 1)]
        {
            keys.insert(format!("deepseek32.{key}"), Value::U32(number));
        }
    });
    let error = OpenModel::open(file.path()).err().unwrap().to_string();
    assert!(error.contains("is DeepSeek-V3.2 (sparse attention, experts), which is not supported yet"), "{error}");
    let sketch = GgufSummary::read(file.path()).unwrap();
    assert_eq!((sketch.layers, sketch.experts, sketch.context_length), (Some(48), Some(64), None));
    let text = sketch.to_string();
    let shape = "shape    48 layers, of width 2048, 64 experts a layer, draft modules announced: 1\n";
    assert!(text.contains(shape), "{text}");
    assert!(text.contains("with no module: the file announces 1 and their tensors are missing"), "{text}");
    assert_eq!(GgufSummary::read(&path("llama")), None);
}

#[test]
fn the_summary_of_a_file_counts_every_tensor_once_and_names_its_module_and_options() {
    for name in ["llama.gguf", "qwen35.gguf", "mixed.gguf", "gemma3.gguf"] {
        let summary = GgufSummary::read(&path(name)).unwrap();
        let content = gguf_file::Content::read(&mut fs::File::open(path(name)).unwrap());
        let tensors = content.map_or(summary.types.iter().map(|share| share.tensors).sum(), |c| c.tensor_infos.len());
        assert_eq!(summary.types.iter().map(|share| share.tensors).sum::<usize>(), tensors, "{name}");
        assert_eq!(summary.types.iter().filter_map(|share| share.bytes).sum::<u64>(), summary.tensor_bytes, "{name}");
        assert!(summary.types.iter().all(|share| share.runs), "{name}");
        let has_module = name == "qwen35.gguf";
        assert_eq!(
            (summary.drafting.modules > 0, summary.drafting.module_bytes > 0),
            (has_module, has_module),
            "{name}"
        );
        let flags = summary.engines.llama_server.unwrap();
        assert_eq!(flags.contains("--spec-type draft-mtp"), has_module, "{flags}");
        assert_eq!(summary.engines.vllm.unwrap().contains(r#""method":"mtp""#), has_module, "{name}");
    }
}

#[test]
fn a_part_of_a_split_file_and_a_drafter_are_described() {
    let part = rewritten("qwen3.gguf", |keys| {
        keys.insert("split.count".to_owned(), Value::U16(3));
        keys.insert("split.no".to_owned(), Value::U16(1));
    });
    let summary = GgufSummary::read(part.path()).unwrap();
    assert_eq!(summary.part, Some((2, 3)));
    assert!(summary.to_string().contains("split    part 2 of 3"), "{summary}");
    for (architecture, role) in
        [("eagle3", "eagle3"), ("dflash", "dflash"), ("gemma4-assistant", "assistant"), ("clip", "other")]
    {
        let file = rewritten("qwen3.gguf", |keys| {
            keys.insert("general.architecture".into(), text(architecture));
            keys.insert(format!("{architecture}.block_size"), Value::U32(16));
            keys.insert("general.base_model.0.repo_url".into(), text("https://huggingface.co/owner/name'; touch x #"));
        });
        let summary = GgufSummary::read(file.path()).unwrap();
        assert_eq!(serde_json::to_value(summary.drafting.role).unwrap(), role);
        assert!(!summary.to_string().contains("touch"), "a name that is no repository is not printed: {summary}");
        assert_eq!(summary.drafting.block_size, (role != "other").then_some(16));
    }
}

#[test]
fn layers_that_read_keys_of_another_have_as_many_heads() {
    let with = |last: u32| {
        rewritten("gemma4.gguf", |keys| {
            let heads = [2, 2, 2, 2, last, 2].map(Value::U32).to_vec();
            keys.insert("gemma4.attention.head_count_kv".to_owned(), Value::Array(heads));
        })
    };
    assert!(OpenModel::open(with(2).path()).is_ok());
    let Err(error) = OpenModel::open(with(1).path()) else { panic!("layer 4 reads keys of two heads as one") };
    let error = error.to_string();
    assert!(
        error.contains("layer 4 reads the keys and values of layer 3") && error.contains("head_count_kv"),
        "{error}"
    );
}
