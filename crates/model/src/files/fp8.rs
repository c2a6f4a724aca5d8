//! 8-bit floating-point numbers, as FP8 checkpoints store them.

/// FP8 with 4 bits of exponent and 3 of mantissa, without infinities. Source: Micikevicius et al.,
/// arXiv:2209.05433.
pub(crate) fn from_e4m3(bits: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f32::from(bits & 7));
    let size = match (exponent, bits & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa / 512.0, // 2^-6 · mantissa / 8
        _ => (1.0 + mantissa / 8.0) * 2.0f32.powi(exponent - 7),
    };
    if bits & 0x80 == 0 { size } else { -size }
}

#[cfg(test)]
mod tests {
    use crate::files::fp8::from_e4m3;

    #[test]
    fn e4m3_has_the_known_values() {
        let known = [(0x00, 0.0), (0x01, 0.001_953_125), (0x08, 0.015_625), (0x38, 1.0), (0x7e, 448.0), (0xc0, -2.0)];
        for (bits, value) in known {
            assert_eq!(from_e4m3(bits), value, "{bits:#x}");
        }
        assert!(from_e4m3(0x7f).is_nan() && from_e4m3(0xff).is_nan());
    }
}
