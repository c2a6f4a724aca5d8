//! The WGSL of a kernel, assembled for a form of weights, a number of rows and the subgroups of a device.

use super::form_source::FormSource;
use super::kernel::{Kernel, TILE, Variant};
use crate::forms::Form;

impl Variant {
    /// Its WGSL, without optional features.
    #[must_use]
    pub fn source(self) -> String {
        self.source_for(1)
    }

    /// Its WGSL where invocations of a workgroup lie side by side in subgroups of at least so many; 1 uses none.
    #[must_use]
    pub fn source_for(self, subgroup: u32) -> String {
        const HEADER: &str = include_str!("shaders/header.wgsl");
        const LARGEST: &str = include_str!("shaders/largest.wgsl");
        const SCORE: &str = include_str!("shaders/attend_score.wgsl");
        const QUANTISE: &str = include_str!("shaders/quantise.wgsl");
        const SIZE: &str = include_str!("shaders/size.wgsl");
        match self.kernel {
            Kernel::Embed(form) => {
                let FormSource { types, values, load, weight, .. } = FormSource::of(form);
                [HEADER, include_str!("shaders/embed.wgsl"), types, &values, &load, weight].concat()
            }
            Kernel::Matrix(form) => {
                let FormSource { types, values, load, input, products, .. } = FormSource::of(form);
                let buffers = include_str!("shaders/matrix_buffers.wgsl");
                let own = match self.is_tile() {
                    true => tiled(form, include_str!("shaders/matrix_tile.wgsl")),
                    false => self.unrolled(&shuffled(include_str!("shaders/matrix.wgsl"), subgroup)),
                };
                [HEADER, buffers, &own, types, &values, &load, input, products].concat()
            }
            Kernel::MatrixPair(first, other) => {
                let FormSource { types, values, load, input, products, .. } = FormSource::of(first);
                let buffers = include_str!("shaders/matrix_pair_buffers.wgsl");
                let own = shuffled(include_str!("shaders/matrix.wgsl"), subgroup)
                    .replace("prepare(t)", "prepare_both(t)")
                    .replace("load_block(n_$o, ", "load_either(n_$o, ")
                    .replace("add_product(", "add_either(n_$o, ");
                let other = FormSource::of(other).as_second();
                [HEADER, buffers, &self.unrolled(&own), types, &values, &load, input, products, &other].concat()
            }
            Kernel::GateUp(form) => {
                let source = FormSource::of(form);
                let FormSource { types, values, load, input, products, .. } = &source;
                let buffers = include_str!("shaders/gate_up_buffers.wgsl");
                let own = match self.is_tile() {
                    true => tiled(form, include_str!("shaders/gate_up_tile.wgsl")),
                    false => self.unrolled(include_str!("shaders/gate_up.wgsl")),
                };
                [HEADER, buffers, &own, QUANTISE, types, values, load, &source.load_up(), input, products].concat()
            }
            Kernel::Norm => [HEADER, include_str!("shaders/norm.wgsl"), SIZE, QUANTISE].concat(),
            Kernel::Rope => [HEADER, include_str!("shaders/rope.wgsl")].concat(),
            Kernel::Attend => [HEADER, &each(include_str!("shaders/attend.wgsl"), "v", 16), SCORE].concat(),
            Kernel::AttendPrompt => {
                let own = each(&each(&each(include_str!("shaders/attend_prompt.wgsl"), "r", 4), "k", 4), "v", 8);
                [HEADER, &own, SCORE, QUANTISE].concat()
            }
            Kernel::Join => [HEADER, &each(include_str!("shaders/join.wgsl"), "v", 4), QUANTISE].concat(),
            Kernel::Stats => [HEADER, &each(include_str!("shaders/stats.wgsl"), "v", 8), LARGEST].concat(),
            Kernel::Pick => [HEADER, include_str!("shaders/pick.wgsl"), LARGEST].concat(),
            Kernel::NormAdd => [HEADER, include_str!("shaders/norm_add.wgsl"), SIZE, QUANTISE].concat(),
            Kernel::Cap => [HEADER, include_str!("shaders/cap.wgsl")].concat(),
            Kernel::Convolve => [HEADER, include_str!("shaders/convolve.wgsl")].concat(),
            Kernel::Delta(own) => {
                [HEADER, &format!("const OWN = {own}u;\n"), include_str!("shaders/delta.wgsl")].concat()
            }
            Kernel::GateNorm => [HEADER, include_str!("shaders/gate_norm.wgsl"), QUANTISE].concat(),
            Kernel::LayerInputs => [HEADER, include_str!("shaders/layer_inputs.wgsl")].concat(),
            Kernel::LayerInput(form) => {
                let source = FormSource::of(form);
                let FormSource { types, values, load, input, products, .. } = &source;
                let own = each(include_str!("shaders/layer_input.wgsl"), "o", 4);
                let load_project = source.load_up().replace("dims.a.y", "dims.b.z");
                [HEADER, &own, SIZE, QUANTISE, types, values, load, &load_project, input, products].concat()
            }
            Kernel::Best => [HEADER, &each(include_str!("shaders/best.wgsl"), "v", 8), LARGEST].concat(),
            Kernel::Stream => [HEADER, include_str!("shaders/stream.wgsl")].concat(),
        }
    }
}

/// Outputs of a lane in products.
pub(crate) const OUTPUTS: usize = 2;

impl Variant {
    fn is_tile(self) -> bool {
        self.rows == TILE
    }

    /// The text for so many rows, with what belongs to each row and output written out, so that sums stay in registers.
    fn unrolled(self, text: &str) -> String {
        let rows = self.rows;
        let list = |name: &str| (0..rows).map(|row| format!("{name}_$o_{row}u")).collect::<Vec<_>>().join(", ");
        let text = text.replace("GATES", &list("gate")).replace("UPS", &list("up"));
        let constants =
            format!("const ROWS = {rows}u;\nconst ROWS_AT_ONCE = {}u;\nconst OUTPUTS = {OUTPUTS}u;\n", rows.min(4));
        let text = each(&each(&text, "r", rows), "o", OUTPUTS);
        // blocks whose loads are under way together: compilers do not unroll loops of unknown length
        constants + &each(&each(&text, "h", 2), "u", 4)
    }
}

/// The text with the last steps of the tree, between lanes of one subgroup, as shuffles.
fn shuffled(text: &str, subgroup: u32) -> String {
    let width = if subgroup < 2 { 1 } else { 1 << subgroup.min(16).ilog2() };
    let steps = (0..4).rev().map(|bit| 1 << bit).filter(|step| *step < width);
    let adds: String = steps.map(|step| format!("        sum += subgroupShuffleDown(sum, {step}u);\n")).collect();
    let shuffles = match width {
        1 => String::new(),
        _ => format!(
            "    for (var i = 0u; i < ROWS * OUTPUTS; i++) {{\n        var sum = partial[64u * i + t];\n{adds}        if lane == 0u {{ partial[64u * i + t] = sum; }}\n    }}\n    workgroupBarrier();\n"
        ),
    };
    format!("const SHUFFLED = {width}u;\n{}", text.replace("    //shuffles\n", &shuffles))
}

/// The text with the tile's products before it. Two blocks of codes or one of numbers fill the workgroup's memory.
fn tiled(form: Form, text: &str) -> String {
    let sums = each(&each(&each(include_str!("shaders/tile.wgsl"), "i", 4), "j", 4), "w", 4);
    format!("const BLOCKS_AT_ONCE = {}u;\n{sums}{text}", if form.is_dense() { 1 } else { 2 })
}

/// Repeats the lines between `//each name` and `//end name`, with `$name` numbered.
fn each(text: &str, name: &str, count: usize) -> String {
    let (start, end, index) = (format!("//each {name}"), format!("//end {name}"), format!("${name}"));
    let (mut out, mut repeated) = (String::new(), None::<String>);
    for line in text.split_inclusive('\n') {
        match (line.trim(), &mut repeated) {
            (mark, None) if mark == start => repeated = Some(String::new()),
            (mark, Some(lines)) if mark == end => {
                (0..count).for_each(|i| out += &lines.replace(&index, &format!("{i}u")));
                repeated = None;
            }
            (_, Some(lines)) => *lines += line,
            (_, None) => out += line,
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use naga::back::{hlsl, msl, spv};

    use super::*;

    #[test]
    fn every_shader_translates_to_spirv_msl_and_hlsl() {
        let variants = Kernel::all().into_iter().flat_map(|kernel| [1, 2, 4, 8, 64].map(|m| kernel.for_rows(m)));
        for (variant, subgroup) in variants.flat_map(|variant| [1, 4, 8, 32].map(|subgroup| (variant, subgroup))) {
            let text = variant.source_for(subgroup);
            if subgroup > 1 && text == variant.source() {
                continue; // it uses none
            }
            let module = naga::front::wgsl::parse_str(&text)
                .unwrap_or_else(|error| panic!("{variant:?}: {}", error.emit_to_string(&text)));
            // unpack2x16float, on every adapter; subgroups where they are used
            let mut capabilities = naga::valid::Capabilities::SHADER_FLOAT16_IN_FLOAT32;
            capabilities.set(naga::valid::Capabilities::SUBGROUP, subgroup > 1);
            let info = naga::valid::Validator::new(naga::valid::ValidationFlags::all(), capabilities)
                .subgroup_stages(naga::valid::ShaderStages::COMPUTE)
                .subgroup_operations(naga::valid::SubgroupOperationSet::all())
                .validate(&module)
                .unwrap_or_else(|error| panic!("{variant:?}: {error:?}"));
            let options = spv::Options { lang_version: (1, 3), ..Default::default() };
            assert!(!spv::write_vec(&module, &info, &options, None).unwrap().is_empty());
            let options = msl::Options { lang_version: (2, 4), fake_missing_bindings: true, ..Default::default() };
            let (metal, _) = msl::write_string(&module, &info, &options, &msl::PipelineOptions::default()).unwrap();
            assert!(metal.contains("kernel void"));
            let mut direct = String::new();
            let shader_model = hlsl::ShaderModel::V6_4;
            let options = hlsl::Options { shader_model, fake_missing_bindings: true, ..Default::default() };
            hlsl::Writer::new(&mut direct, &options, &hlsl::PipelineOptions::default())
                .write(&module, &info, None)
                .unwrap();
            assert!(direct.contains("numthreads"));
        }
    }

    #[test]
    fn no_kernel_needs_an_optional_feature_or_assumes_the_width_of_a_subgroup() {
        let sources = Kernel::all().into_iter().flat_map(|kernel| [1, 8].map(|m| kernel.for_rows(m).source()));
        for source in sources {
            let code: String = source.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
            for word in ["enable", "f16>", "subgroup"] {
                assert!(!code.contains(word), "{word} in {source}");
            }
        }
    }
}
