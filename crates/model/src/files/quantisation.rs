//! Quantisation schemes of checkpoints: block-scaled FP8, which runs, and the packed weights of other engines, which are
//! recognised by `config.json` or by the names of their tensors.

use serde_json::{Map, Value};

use crate::ModelError;
use crate::error::clean;

/// `quant_method` of `quantization_config`, and how the scheme is called.
const SCHEMES: &[(&str, &str)] = &[
    ("awq", "AWQ"),
    ("gptq", "GPTQ"),
    ("auto-round", "AutoRound"),
    ("bitsandbytes", "bitsandbytes"),
    ("compressed-tensors", "compressed-tensors"),
    ("fp8", "FP8"),
    ("fbgemm_fp8", "FP8 of FBGEMM"),
    ("modelopt", "ModelOpt"),
    ("mxfp4", "MXFP4"),
    ("hqq", "HQQ"),
    ("aqlm", "AQLM"),
    ("vptq", "VPTQ"),
    ("spqr", "SpQR"),
    ("higgs", "HIGGS"),
    ("quip", "QuIP#"),
    ("eetq", "EETQ"),
    ("quanto", "Quanto"),
    ("quark", "Quark"),
    ("torchao", "torchao"),
    ("bitnet", "BitNet"),
    ("mlx", "MLX"),
    ("exl2", "EXL2"),
    ("exl3", "EXL3"),
];

/// Ends of names of tensors that only one scheme has, a further end that must be there too, and how the scheme is called.
const TENSORS: &[(&str, &str, &str)] = &[
    (".weight_packed", "", "compressed-tensors"),
    (".g_idx", ".qweight", "GPTQ"),
    (".qzeros", ".qweight", "AWQ or GPTQ"),
    (".q_weight", "", "EXL2"),
    (".trellis", "", "EXL3"),
    (".weight.absmax", "", "bitsandbytes"),
    (".SCB", "", "bitsandbytes"),
    (".biases", ".scales", "MLX"),
    ("_scales", "_blocks", "MXFP4"),
    (".W_q", "", "HQQ"),
    (".codebooks", "", "AQLM"),
    (".weight._data", "", "Quanto"),
    (".weight_scale_2", "", "ModelOpt"),
    (".weight_scale", "", "FP8 or INT8 with scales of rows or tensors"),
];

/// The advice for weights that another engine packed.
const NEXT: &str = "use the unquantised repository, or a GGUF file";

/// Rows and columns that share a scale, if weights are FP8.
///
/// # Errors
/// [`ModelError::Unsupported`] naming any scheme except block-scaled FP8.
pub(super) fn fp8_block(keys: &Map<String, Value>) -> Result<Option<[usize; 2]>, ModelError> {
    let given = |key: &str| keys.get(key).and_then(Value::as_object).filter(|config| !config.is_empty());
    let Some(config) = given("quantization_config") else {
        return given("quantization").map_or(Ok(None), |config| Err(unsupported("MLX", config, "quantization")));
    };
    let Some(method) = config.get("quant_method").and_then(Value::as_str) else {
        // mlx-lm writes the same keys here as under 'quantization'
        let scheme = if config.contains_key("group_size") { "MLX" } else { "a scheme without a name" };
        return Err(unsupported(scheme, config, "quantization_config"));
    };
    if method == "fp8" {
        let block = config.get("weight_block_size").filter(|block| !block.is_null());
        let Some(block) = block else {
            return Err(ModelError::Unsupported(format!(
                "'quantization_config' is fp8 without a 'weight_block_size'; only block-scaled FP8 is supported: {NEXT}"
            )));
        };
        let block: Option<[usize; 2]> = serde_json::from_value(block.clone()).ok();
        return match block.filter(|block| block.iter().all(|size| (1..=1 << 20).contains(size))) {
            Some(block) => Ok(Some(block)),
            None => {
                Err(ModelError::Metadata("'quantization_config.weight_block_size' is not a pair of sizes".to_owned()))
            }
        };
    }
    let known = SCHEMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(method)).map(|(_, title)| *title);
    let says = format!("'quantization_config.quant_method' is '{}'", clean(method));
    let bits = bits(config).map_or_else(String::new, |bits| format!(", {bits} bit"));
    Err(ModelError::Unsupported(match known {
        Some(title) => {
            format!("the weights are quantised with {title}{bits} ({says}), which is not supported; {NEXT}")
        }
        None => format!("{says}{bits}, which is not supported; {NEXT}"),
    }))
}

fn unsupported(scheme: &str, config: &Map<String, Value>, key: &str) -> ModelError {
    let bits = bits(config).map_or_else(String::new, |bits| format!(", {bits} bit"));
    ModelError::Unsupported(format!(
        "the weights are quantised with {scheme}{bits} ('{key}' in config.json), which is not supported; {NEXT}"
    ))
}

/// Bits of a weight, as the schemes' configurations name them.
fn bits(config: &Map<String, Value>) -> Option<u64> {
    let of = |value: &Value| ["bits", "w_bit", "nbits", "num_bits"].iter().find_map(|key| value[*key].as_u64());
    let whole = Value::Object(config.clone());
    let group = || {
        let groups = config.get("config_groups")?.as_object()?;
        groups.values().find_map(|group| of(&group["weights"]))
    };
    let flag = |key: &str, bits: u64| (config.get(key) == Some(&Value::Bool(true))).then_some(bits);
    let bits = of(&whole).or_else(group).or_else(|| flag("load_in_4bit", 4)).or_else(|| flag("load_in_8bit", 8));
    bits.filter(|bits| *bits <= 64)
}

/// Rejects tensors that another engine packed, recognised by their names.
///
/// # Errors
/// [`ModelError::Unsupported`] naming the scheme and a tensor.
pub(super) fn check_names<'a>(names: &(impl Iterator<Item = &'a str> + Clone)) -> Result<(), ModelError> {
    let with = |end: &str| names.clone().filter(|name| name.ends_with(end)).min();
    for (end, other, scheme) in TENSORS {
        if let Some(name) = with(end)
            && with(other).is_some()
        {
            return Err(ModelError::Unsupported(format!(
                "the weights are packed as by another engine ({scheme}: tensor '{}'), which is not supported; {NEXT}",
                clean(name)
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn block(config: &Value) -> Result<Option<[usize; 2]>, String> {
        fp8_block(config.as_object().unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn schemes_are_named_with_their_bits() {
        let fp8 = json!({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}});
        assert_eq!(block(&fp8), Ok(Some([128, 128])));
        for none in [json!({}), json!({"quantization_config": null}), json!({"quantization_config": {}})] {
            assert_eq!(block(&none), Ok(None));
        }
        for (config, says) in [
            (
                json!({"quant_method": "awq", "bits": 4}),
                "with AWQ, 4 bit ('quantization_config.quant_method' is 'awq')",
            ),
            (json!({"quant_method": "bitsandbytes", "load_in_4bit": true}), "with bitsandbytes, 4 bit"),
            (
                json!({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4}}}}),
                "with compressed-tensors, 4 bit",
            ),
            (json!({"quant_method": "hqq", "quant_config": {}}), "with HQQ ("),
            (json!({"quant_method": "new\u{1b}"}), "is 'new\u{fffd}', which is not supported"),
            (json!({"group_size": 64, "bits": 4}), "with MLX, 4 bit ('quantization_config'"),
            (json!({"quant_method": "fp8"}), "weight_block_size"),
            (json!({"quant_method": "fp8", "weight_block_size": [0, 128]}), "weight_block_size"),
        ] {
            let error = block(&json!({ "quantization_config": config })).unwrap_err();
            assert!(error.contains(says), "{says}: {error}");
        }
        let mlx = block(&json!({"quantization": {"group_size": 32, "bits": 8}})).unwrap_err();
        assert!(
            mlx.contains("with MLX, 8 bit ('quantization' in config.json)") && mlx.contains("a GGUF file"),
            "{mlx}"
        );
    }

    #[test]
    fn packed_tensors_are_recognised_by_their_names() {
        let check = |names: &[&str]| check_names(&names.iter().copied()).map_err(|error| error.to_string());
        assert_eq!(check(&["a.weight", "a.bias", "a.weight_scale_inv"]), Ok(()));
        assert_eq!(check(&["a.biases"]), Ok(()), "needs both");
        for (names, scheme) in [
            (&["a.weight", "a.scales", "a.biases"][..], "MLX"),
            (&["a.qweight", "a.qzeros", "a.scales"], "AWQ or GPTQ"),
            (&["a.qweight", "a.qzeros", "a.g_idx"], "GPTQ"),
            (&["a.weight_packed", "a.weight_scale"], "compressed-tensors"),
            (&["a.weight", "a.weight.absmax"], "bitsandbytes"),
            (&["a_blocks", "a_scales"], "MXFP4"),
        ] {
            assert!(check(names).unwrap_err().contains(&format!("({scheme}: tensor 'a")), "{scheme}");
        }
    }
}
