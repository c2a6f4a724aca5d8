//! Names of the parts of a split GGUF file: `NAME-00001-of-00003.gguf`.

/// Name, number from 1, and count of a part by its file name: `NAME-00001-of-00003.gguf` → `NAME`, 1, 3.
#[must_use]
pub fn split_part(file: &str) -> Option<(&str, usize, usize)> {
    split_stem(file.strip_suffix(".gguf").or_else(|| file.strip_suffix(".GGUF"))?)
}

/// The same without `.gguf`.
#[must_use]
pub fn split_stem(stem: &str) -> Option<(&str, usize, usize)> {
    let (rest, count) = stem.rsplit_once("-of-")?;
    let (name, part) = rest.rsplit_once('-')?;
    let number = |text: &str| {
        let is_number = text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<usize>().ok())?
    };
    Some((name, number(part)?, number(count)?))
}

/// The usual name of a part; `number` counts from 1.
#[must_use]
pub fn part_name(stem: &str, number: usize, count: usize) -> String {
    format!("{stem}-{number:05}-of-{count:05}.gguf")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_two_numbers_of_five_digits() {
        assert_eq!(split_part("q/m-Q4-00002-of-00003.gguf"), Some(("q/m-Q4", 2, 3)));
        assert_eq!(part_name("m", 2, 3), "m-00002-of-00003.gguf");
        for other in ["m.gguf", "m-1-of-3.gguf", "m-00001-of-00003.bin", "00001-of-00003.gguf", "m-0000é-of-00003.gguf"]
        {
            assert_eq!(split_part(other), None, "{other}");
        }
    }
}
