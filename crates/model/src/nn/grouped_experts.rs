//! Experts in groups, chosen by scores of their own and a correction (DeepSeek-V3, arXiv:2412.19437, section 2.1.2), or by
//! their probabilities without groups (DeepSeek-V2-Lite): sizes and keys. DeepSeek-V3's layout and GLM-4.5 have them.

use serde::Deserialize;

use crate::ModelError;
use crate::error::clean;
use crate::files::config_json::{contradiction, given, positive, refused, size};
use crate::nn::gguf_keys::GgufKeys;

/// How a router's numbers become scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gating {
    /// Sigmoids, each expert by itself (DeepSeek-V3).
    Sigmoid,
    /// Softmax over all experts (DeepSeek-V2, arXiv:2405.04434, section 2.2).
    Softmax,
}

impl Gating {
    /// Value of `expert_gating_func` for softmax and for sigmoids (`llama_expert_gating_func_type` of llama.cpp).
    const NUMBERS: [u64; 2] = [1, 2];

    /// Reads the key; `sigmoid`: whether scores are sigmoids where no key says so.
    fn from_gguf(keys: &GgufKeys<'_>, sigmoid: bool) -> Result<Self, ModelError> {
        let key = keys.key("expert_gating_func");
        let [softmax, sigmoids] = Self::NUMBERS;
        match keys.gguf.number(&key).filter(|number| *number != 0) {
            None => Ok(if sigmoid { Self::Sigmoid } else { Self::Softmax }),
            Some(number) if number == softmax => Ok(Self::Softmax),
            Some(number) if number == sigmoids => Ok(Self::Sigmoid),
            Some(number) => Err(ModelError::Unsupported(format!(
                "'{key}' is {number}: experts are chosen by softmax ({softmax}) or sigmoids ({sigmoids})"
            ))),
        }
    }
}

/// A layer of experts, of which each row chooses some.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupedExperts {
    /// Experts of a layer.
    pub count: usize,
    /// Experts that a row chooses.
    pub used: usize,
    /// Width of an expert.
    pub width: usize,
    /// Shared experts, which every row uses: one of so many times the width.
    pub shared: usize,
    /// How scores are computed.
    pub gating: Gating,
    /// Groups of experts.
    pub groups: usize,
    /// Groups that a row chooses from.
    pub used_groups: usize,
    /// Whether a row's weights are normalised to sum 1.
    pub normed: bool,
    /// Factor of the weights after that.
    pub factor: f64,
}

/// The keys of `config.json` about them.
#[derive(Clone, Debug, Deserialize)]
pub struct GroupedExpertKeys {
    n_routed_experts: usize,
    n_shared_experts: Option<usize>,
    num_experts_per_tok: usize,
    moe_intermediate_size: usize,
    n_group: Option<usize>,
    topk_group: Option<usize>,
    topk_method: Option<String>,
    scoring_func: Option<String>,
    norm_topk_prob: Option<bool>,
    routed_scaling_factor: Option<f64>,
}

/// Names of the keys of a choice that do not go together: used, count, groups, used groups.
type KeyNames<'a> = [&'a str; 4];

const JSON_NAMES: KeyNames<'static> = ["num_experts_per_tok", "n_routed_experts", "n_group", "topk_group"];

impl GroupedExpertKeys {
    /// Checks them.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] or [`ModelError::Unsupported`] naming the key.
    pub fn experts(&self) -> Result<GroupedExperts, ModelError> {
        if let Some(func) = self.scoring_func.as_deref().filter(|func| *func != "sigmoid") {
            return refused(format!("'scoring_func' is '{}'", clean(func)));
        }
        if let Some(method) = self.topk_method.as_deref().filter(|method| *method != "noaux_tc") {
            return refused(format!("'topk_method' is '{}'", clean(method)));
        }
        let shared = given("n_shared_experts", self.n_shared_experts)?;
        if shared > 64 {
            return contradiction(format!("'n_shared_experts' is {shared}, expected 0 to 64"));
        }
        let factor = given("routed_scaling_factor", self.routed_scaling_factor)?;
        GroupedExperts {
            count: size("n_routed_experts", self.n_routed_experts, 1024)?,
            used: size("num_experts_per_tok", self.num_experts_per_tok, 1024)?,
            width: size("moe_intermediate_size", self.moe_intermediate_size, 1 << 20)?,
            shared,
            gating: Gating::Sigmoid,
            groups: given("n_group", self.n_group)?,
            used_groups: given("topk_group", self.topk_group)?,
            normed: self.norm_topk_prob.unwrap_or(true),
            factor: positive("routed_scaling_factor", factor)?,
        }
        .checked(JSON_NAMES)
    }
}

impl GroupedExperts {
    /// Reads the keys of a GGUF file; `sigmoid`: whether scores are sigmoids where no key says so.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] or [`ModelError::Unsupported`] naming the key.
    pub fn from_gguf(keys: &GgufKeys<'_>, sigmoid: bool) -> Result<Self, ModelError> {
        let optional = |name: &str| keys.gguf.number(&keys.key(name)).filter(|number| *number != 0);
        let or_one = |name: &str| optional(name).map_or(Ok(1), |_| keys.size(name, 1024));
        let names = ["expert_used_count", "expert_count", "expert_group_count", "expert_group_used_count"];
        let names = names.map(|name| keys.key(name));
        Self {
            count: keys.size("expert_count", 1024)?,
            used: keys.size("expert_used_count", 1024)?,
            width: keys.size("expert_feed_forward_length", 1 << 20)?,
            shared: if optional("expert_shared_count").is_some() { keys.size("expert_shared_count", 64)? } else { 0 },
            gating: Gating::from_gguf(keys, sigmoid)?,
            groups: or_one("expert_group_count")?,
            used_groups: or_one("expert_group_used_count")?,
            normed: keys.gguf.value(&keys.key("expert_weights_norm")).is_ok_and(|v| v.to_bool().unwrap_or(false)),
            factor: keys.gguf.real(&keys.key("expert_weights_scale"), Some(1.0))?.into(),
        }
        .checked(names.each_ref().map(String::as_str))
    }

    fn checked(self, [used_name, count_name, groups_name, used_groups_name]: KeyNames<'_>) -> Result<Self, ModelError> {
        let Self { count, used, groups, used_groups, gating, .. } = self;
        if gating == Gating::Softmax && groups > 1 {
            return Err(ModelError::Unsupported(format!(
                "'{groups_name}' is {groups} and experts are chosen by softmax (DeepSeek-V2, not Lite); groups are supported \
                 where sigmoids choose"
            )));
        }
        if used > count {
            return contradiction(format!("'{used_name}' is {used} and '{count_name}' is {count}"));
        }
        if groups == 0 || !count.is_multiple_of(groups) || (groups > 1 && count / groups < 2) {
            return contradiction(format!(
                "'{groups_name}' is {groups} and '{count_name}' is {count}: they make no groups of two or more experts"
            ));
        }
        if used_groups == 0 || used_groups > groups {
            return contradiction(format!("'{used_groups_name}' is {used_groups} and '{groups_name}' is {groups}"));
        }
        if used > count / groups * used_groups {
            return contradiction(format!(
                "'{used_name}' is {used} and '{used_groups_name}' ({used_groups}) groups hold {} experts",
                count / groups * used_groups
            ));
        }
        Ok(self)
    }
}

/// How many layers of `config.json` come before those of experts, with an ordinary feed-forward layer.
#[derive(Clone, Debug, Deserialize)]
pub struct DenseLayerKeys {
    moe_layer_freq: Option<usize>,
    first_k_dense_replace: Option<usize>,
    mlp_layer_types: Option<Vec<String>>,
}

impl DenseLayerKeys {
    /// The number, for a model of so many layers; `usual` if no key states it.
    ///
    /// # Errors
    /// [`ModelError::Metadata`] or [`ModelError::Unsupported`] naming the key.
    pub fn dense_layers(&self, usual: Option<usize>, layers: usize) -> Result<usize, ModelError> {
        if let Some(every) = self.moe_layer_freq.filter(|every| *every != 1) {
            return refused(format!("'moe_layer_freq' is {every}"));
        }
        let listed = self.mlp_layer_types.as_deref().map(|types| listed(types, layers)).transpose()?;
        let dense = match (self.first_k_dense_replace, listed) {
            (Some(first), Some(listed)) if first != listed => {
                return contradiction(format!(
                    "'first_k_dense_replace' is {first} and 'mlp_layer_types' begins with {listed} dense layers"
                ));
            }
            (first, listed) => first.or(listed),
        };
        match dense {
            Some(dense) if dense <= layers => Ok(dense),
            Some(dense) => {
                contradiction(format!("'first_k_dense_replace' is {dense} and 'num_hidden_layers' is {layers}"))
            }
            None => given("first_k_dense_replace", usual),
        }
    }
}

/// Dense layers at the beginning of the list; none may follow later.
fn listed(types: &[String], layers: usize) -> Result<usize, ModelError> {
    if types.len() != layers {
        return contradiction(format!(
            "'mlp_layer_types' names {} layers and 'num_hidden_layers' is {layers}",
            types.len()
        ));
    }
    let dense = types.iter().take_while(|kind| *kind == "dense").count();
    match types[dense..].iter().find(|kind| *kind != "sparse") {
        Some(kind) => refused(format!("'mlp_layer_types' holds '{}' after layer {dense}", clean(kind))),
        None => Ok(dense),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_for_sigmoids() {
        let shape = GroupedExperts {
            count: 6,
            used: 2,
            width: 1,
            shared: 0,
            gating: Gating::Softmax,
            groups: 3,
            used_groups: 1,
            normed: true,
            factor: 2.0,
        };
        let error = shape.checked(JSON_NAMES).unwrap_err().to_string();
        assert!(error.contains("'n_group' is 3"), "{error}");
        GroupedExperts { gating: Gating::Sigmoid, ..shape }.checked(JSON_NAMES).unwrap();
    }
}
