//! WGSL that reads and multiplies weights of a [`Form`].
//!
//! Every kernel sees the same functions: `load_block(n, b, step)` (eight or 32 weights of output `n`, unpacked),
//! `load_input`, `add_product(before, block, input)`, which is the one place where the order of sums within a block is
//! written, and `weight_of(block, i)`. `dims.a.y` is the number of blocks of a row.

use draftscope_kernels::Encoding;

use crate::forms::{Form, Layout, Meaning, Scales};

/// The parts of a form's WGSL.
pub(crate) struct FormSource {
    /// Types that all forms of codes have, or of numbers.
    pub(crate) types: &'static str,
    /// What a code stands for.
    pub(crate) values: String,
    /// Reading blocks of `weights` and `weight_scales`.
    pub(crate) load: String,
    /// Activations as all forms of codes read them, or of numbers.
    pub(crate) input: &'static str,
    /// Products with activations.
    pub(crate) products: &'static str,
    /// One weight of a block.
    pub(crate) weight: &'static str,
}

impl FormSource {
    pub(crate) fn of(form: Form) -> Self {
        match form.layout() {
            Some(layout) => of_codes(layout),
            None => of_numbers(form),
        }
    }

    /// Reading blocks of a second matrix of this form, `up_weights` and `up_scales`, as `up_block`.
    pub(crate) fn load_up(&self) -> String {
        second(&self.load)
    }

    /// Reading and multiplying blocks of a second matrix of another form of codes, as `up_block` and `up_add_product`.
    pub(crate) fn as_second(&self) -> String {
        let text = second(&[&self.values, &self.load, self.products].concat());
        let names = ["Stored", "prepare(", "value(", "entry(", "entries", "add_product("];
        names.iter().fold(text, |text, name| text.replace(name, &format!("up_{name}")))
    }
}

/// The text with the buffers and functions of a second matrix.
fn second(text: &str) -> String {
    let names = [
        ("load_block", "up_block"),
        ("load_scales", "up_scales_of"),
        ("weights[", "up_weights["),
        ("weight_scales[", "up_scales["),
    ];
    names.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

fn of_numbers(form: Form) -> FormSource {
    let half = |unpack: &str| {
        let pairs = ["x", "y", "z", "w"].map(|word| format!("{unpack}(w.{word})")).join(", ");
        format!(
            "fn bf16_pair(word: u32) -> vec2<f32> {{\n    return vec2<f32>(bitcast<f32>(word << 16u), bitcast<f32>(word & 0xffff0000u));\n}}\n\
             fn numbers(w: vec4<u32>) -> Block {{\n    let p = array<vec2<f32>, 4>({pairs});\n    return Block(vec4<f32>(p[0], p[1]), vec4<f32>(p[2], p[3]));\n}}\n"
        )
    };
    let (numbers, load) = match form {
        Form::Of(Encoding::F16) => (half("unpack2x16float"), "numbers(weights[4u * at + step])"),
        Form::Of(Encoding::Bf16) => (half("bf16_pair"), "numbers(weights[4u * at + step])"),
        _ => (
            String::new(),
            "Block(bitcast<vec4<f32>>(weights[8u * at + 2u * step]), bitcast<vec4<f32>>(weights[8u * at + 2u * step + 1u]))",
        ),
    };
    FormSource {
        types: include_str!("shaders/form_numbers.wgsl"),
        values: format!("alias Stored = vec4<u32>;\nfn prepare(t: u32) {{}}\n{numbers}"),
        load: format!(
            "fn load_block(n: u32, b: u32, step: u32) -> Block {{\n    let at = n * dims.a.y + b;\n    return {load};\n}}\n"
        ),
        input: include_str!("shaders/form_numbers_products.wgsl"),
        products: "",
        weight: "fn weight_of(block: Block, i: u32) -> f32 { return select(block.high, block.low, (i & 4u) == 0u)[i & 3u]; }\n",
    }
}

fn of_codes(layout: Layout) -> FormSource {
    let (stored, codes) = match layout.code_bits {
        2 => ("vec2<u32>", "twos(weights[at])"),
        4 => ("vec4<u32>", "nibbles(weights[at])"),
        _ => ("vec4<u32>", "Codes(weights[2u * at], weights[2u * at + 1u])"),
    };
    let high = match layout.high_bits {
        0 => String::new(),
        bits => {
            let planes = match bits {
                1 => "ones(weight_scales[row + b])",
                _ => "twos(vec2<u32>(weight_scales[row + 2u * b], weight_scales[row + 2u * b + 1u]))",
            };
            let shift = layout.code_bits;
            format!(
                "    let more = {planes};\n    codes.low |= more.low << vec4<u32>({shift}u);\n    codes.high |= more.high << vec4<u32>({shift}u);\n"
            )
        }
    };
    let (shared, words) = layout.scales.words();
    let (value, prepare) = values(layout.meaning);
    let load = format!(
        "fn load_block(n: u32, b: u32, step: u32) -> Block {{
    let blocks = dims.a.y;
    let row = n * (blocks * {high_bits}u + (blocks + {most}u) / {shared}u * {words}u);
    let at = n * blocks + b;
    var codes = {codes};
{high}    return Block(value(codes.low), value(codes.high), load_scales(row + blocks * {high_bits}u, b));
}}
{scales}",
        high_bits = layout.high_bits,
        most = shared - 1,
        scales = scales(layout.scales),
    );
    FormSource {
        types: include_str!("shaders/form_codes.wgsl"),
        values: format!("alias Stored = {stored};\n{prepare}{value}"),
        load,
        input: include_str!("shaders/form_codes_products.wgsl"),
        products: products(layout.scales),
        weight: weight(layout.scales),
    }
}

/// `fn value`: what four codes of each word stand for; and `fn prepare`, which every kernel calls first.
fn values(meaning: Meaning) -> (String, String) {
    let nothing = "fn prepare(t: u32) {}\n".to_owned();
    match meaning {
        Meaning::Itself => ("fn value(w: vec4<u32>) -> vec4<u32> { return w; }\n".to_owned(), nothing),
        Meaning::Less(offset) => {
            // a code plus 128 − offset has no carry; turning the sign over takes 128 away again
            let add = u32::from_ne_bytes([(128 - i16::from(offset)) as u8; 4]);
            let value = format!(
                "fn value(w: vec4<u32>) -> vec4<u32> {{ return (w + vec4<u32>({add:#x}u)) ^ vec4<u32>(0x80808080u); }}\n"
            );
            (value, nothing)
        }
        Meaning::Entry(table) => {
            let entries = table.map(|entry| format!("{}u", entry.cast_unsigned())).join(", ");
            let prepare = format!(
                "var<workgroup> entries: array<u32, 16>;
fn prepare(t: u32) {{
    var table = array<u32, 16>({entries});
    if t < 16u {{ entries[t] = table[t]; }}
    workgroupBarrier();
}}
"
            );
            let value = "fn entry(w: u32) -> u32 {
    return entries[w & 15u] | entries[(w >> 8u) & 15u] << 8u | entries[(w >> 16u) & 15u] << 16u | entries[w >> 24u] << 24u;
}
fn value(w: vec4<u32>) -> vec4<u32> { return vec4<u32>(entry(w.x), entry(w.y), entry(w.z), entry(w.w)); }
";
            (value.to_owned(), prepare)
        }
    }
}

/// `fn load_scales`: of block `b` of a row whose scales begin at `row`.
fn scales(scales: Scales) -> String {
    let (_, words) = scales.words();
    let body = match scales {
        Scales::Half => {
            "    return vec4<f32>(unpack2x16float(weight_scales[row + b / 2u] >> (16u * (b & 1u))).x, 0.0, 0.0, 0.0);\n"
        }
        Scales::HalfAndMin => "    return vec4<f32>(unpack2x16float(weight_scales[row + b]), 0.0, 0.0);\n",
        Scales::Exponent => {
            "    let e = (weight_scales[row + b / 4u] >> (8u * (b & 3u))) & 255u;
    return vec4<f32>(bitcast<f32>(select((e - 1u) << 23u, 0x200000u << e, e < 2u)), 0.0, 0.0, 0.0);\n"
        }
        Scales::SixBitsAndMin => {
            "    let d = unpack2x16float(weight_scales[at]);
    let low = weight_scales[at + 1u + i / 4u] >> (8u * (i & 3u));
    let high = weight_scales[at + 3u] >> (4u * i);
    let scale = f32((low & 15u) | ((high & 3u) << 4u));
    let least = f32(((low >> 4u) & 15u) | ((high & 12u) << 2u));
    return vec4<f32>(d.x * scale, -(d.y * least), 0.0, 0.0);\n"
        }
        Scales::SixBits => {
            "    let last = weight_scales[at + 1u];
    let scale = ((weight_scales[at] >> (4u * i)) & 15u) | (((last >> (16u + 2u * i)) & 3u) << 4u);
    return vec4<f32>(unpack2x16float(last).x * f32(i32(scale) - 32), 0.0, 0.0, 0.0);\n"
        }
        Scales::SixBitsEach16 => {
            "    let d = unpack2x16float(weight_scales[at]).x;
    let low = weight_scales[at + 1u + i / 4u] >> (8u * (i & 3u));
    let high = weight_scales[at + 3u] >> (4u * i);
    let first = f32(i32((low & 15u) | ((high & 3u) << 4u)) - 32);
    let second = f32(i32(((low >> 4u) & 15u) | ((high & 12u) << 2u)) - 32);
    return vec4<f32>(d * first, 0.0, d * second, 0.0);\n"
        }
        Scales::EightBitsEach16 => {
            "    let d = unpack2x16float(weight_scales[at]).x;
    let both = bitcast<i32>(weight_scales[at + 1u + i / 2u] >> (16u * (i & 1u)));
    return vec4<f32>(d * f32(extractBits(both, 0u, 8u)), 0.0, d * f32(extractBits(both, 8u, 8u)), 0.0);\n"
        }
        Scales::FourBitsEach16 => {
            "    let d = unpack2x16float(weight_scales[at]);
    let both = weight_scales[at + 1u + i / 2u] >> (16u * (i & 1u));
    let first = vec2<f32>(d.x * f32(both & 15u), -(d.y * f32((both >> 4u) & 15u)));
    return vec4<f32>(first, d.x * f32((both >> 8u) & 15u), -(d.y * f32((both >> 12u) & 15u)));\n"
        }
        Scales::Plain => {
            "    let at = row + 4u * b;
    return bitcast<vec4<f32>>(vec4<u32>(weight_scales[at], weight_scales[at + 1u], weight_scales[at + 2u], weight_scales[at + 3u]));\n"
        }
    };
    let place = if scales.words().0 == 8 {
        format!("    let at = row + b / 8u * {words}u;\n    let i = b % 8u;\n")
    } else {
        String::new()
    };
    format!("fn load_scales(row: u32, b: u32) -> vec4<f32> {{\n{place}{body}}}\n")
}

/// `fn add_product`: the products of a block after those before it, half by half if halves have scales of their own.
const fn products(scales: Scales) -> &'static str {
    match (scales.each_16(), scales.has_min()) {
        (false, false) => {
            "fn add_product(before: f32, w: Block, x: Input) -> f32 {
    return before + (w.s.x * x.s.x) * f32(dot16(w.low, x.low) + dot16(w.high, x.high));
}
"
        }
        (false, true) => {
            "fn add_product(before: f32, w: Block, x: Input) -> f32 {
    return (before + (w.s.x * x.s.x) * f32(dot16(w.low, x.low) + dot16(w.high, x.high))) + w.s.y * x.s.w;
}
"
        }
        (true, false) => {
            "fn add_product(before: f32, w: Block, x: Input) -> f32 {
    let half = before + (w.s.x * x.s.x) * f32(dot16(w.low, x.low));
    return half + (w.s.z * x.s.x) * f32(dot16(w.high, x.high));
}
"
        }
        (true, true) => {
            "fn add_product(before: f32, w: Block, x: Input) -> f32 {
    let half = (before + (w.s.x * x.s.x) * f32(dot16(w.low, x.low))) + w.s.y * x.s.y;
    return (half + (w.s.z * x.s.x) * f32(dot16(w.high, x.high))) + w.s.w * x.s.z;
}
"
        }
    }
}

/// `fn weight_of`.
const fn weight(scales: Scales) -> &'static str {
    match (scales.each_16(), scales.has_min()) {
        (false, false) => {
            "fn weight_of(block: Block, i: u32) -> f32 { return block.s.x * code_of(block, i); }
"
        }
        (false, true) => {
            "fn weight_of(block: Block, i: u32) -> f32 { return block.s.x * code_of(block, i) + block.s.y; }
"
        }
        (true, false) => {
            "fn weight_of(block: Block, i: u32) -> f32 { return select(block.s.z, block.s.x, i < 16u) * code_of(block, i); }
"
        }
        (true, true) => {
            "fn weight_of(block: Block, i: u32) -> f32 {
    let s = select(block.s.zw, block.s.xy, i < 16u);
    return s.x * code_of(block, i) + s.y;
}
"
        }
    }
}
