//! Prompts of a data set in Parquet.

use std::fs::File;

use anyhow::{Result, bail};
use parquet::file::reader::SerializedFileReader;
use parquet::record::{Field, Row};

use super::data_set::{ChatLine, DataRow, MOST_ROWS, collect};
use super::prompt::{MOST_TEXT, SuitePrompt};

/// The prompts of a table.
///
/// # Errors
/// When the file is no Parquet table, holds more than is read, or a row is no prompt.
pub(super) fn prompts(file: File) -> Result<Vec<SuitePrompt>> {
    let reader = SerializedFileReader::new(file).context("it is no Parquet table")?;
    let groups = reader.metadata().row_groups();
    let bytes: i128 = groups.iter().map(|group| i128::from(group.total_byte_size())).sum();
    if bytes > i128::from(MOST_TEXT) {
        bail!("its columns are longer than {} MiB", MOST_TEXT >> 20);
    }
    if reader.metadata().file_metadata().num_rows() > MOST_ROWS as i64 {
        bail!("it has more than {MOST_ROWS} rows");
    }
    let rows = reader.get_row_iter(None).context("its rows cannot be read")?;
    collect(rows.enumerate().map(|(index, row)| {
        let place = format!("row {}", index + 1);
        data_row(&row.with_context(|| format!("{place} cannot be read"))?).prompt(&place)
    }))
}

/// The columns of a row that are read.
fn data_row(row: &Row) -> DataRow {
    let mut read = DataRow::default();
    for (name, field) in row.get_column_iter() {
        match (name.as_str(), field) {
            ("category", Field::Str(text)) => read.category = Some(text.clone()),
            ("turns", Field::ListInternal(list)) => {
                read.turns = Some(list.elements().iter().map(|field| text_of(field).unwrap_or_default()).collect());
            }
            ("messages", Field::ListInternal(list)) => read.messages = Some(list.elements().iter().map(line).collect()),
            _ => {}
        }
    }
    read
}

fn text_of(field: &Field) -> Option<String> {
    match field {
        Field::Str(text) => Some(text.clone()),
        _ => None,
    }
}

/// A message; what is no text is empty, which is reported as such.
fn line(field: &Field) -> ChatLine {
    let column = |name: &str| match field {
        Field::Group(row) => {
            row.get_column_iter().find(|(column, _)| *column == name).and_then(|(_, field)| text_of(field))
        }
        _ => None,
    };
    ChatLine { role: column("role").unwrap_or_default(), content: column("content").unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::basic::Compression;
    use parquet::data_type::{ByteArray, ByteArrayType};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;

    /// Two rows as `datasets` writes them: a nullable list of nullable texts, compressed by snappy.
    fn table(category: &str) -> File {
        let schema = "message schema { optional binary category (UTF8); optional group turns (LIST) { repeated group list { \
                      optional binary element (UTF8); } } }";
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let file = tempfile::tempfile().unwrap();
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let mut writer = SerializedFileWriter::new(file.try_clone().unwrap(), schema, Arc::new(properties)).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = |values: &[&str], defined: &[i16], repeated: Option<&[i16]>| {
            let values: Vec<ByteArray> = values.iter().map(|text| ByteArray::from(*text)).collect();
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<ByteArrayType>().write_batch(&values, Some(defined), repeated).unwrap();
            column.close().unwrap();
        };
        column(&[category, "qa"], &[1, 1], None);
        column(&["one", "two", "three"], &[3, 3, 3], Some(&[0, 1, 0]));
        group.close().unwrap();
        writer.close().unwrap();
        file
    }

    #[test]
    fn a_table_of_the_data_set_is_read() {
        let read = prompts(table("coding")).unwrap();
        let shown: Vec<_> = read.iter().map(|prompt| (prompt.category.as_str(), prompt.turns.join("|"))).collect();
        assert_eq!(shown, [("coding", "one|two".to_owned()), ("qa", "three".to_owned())]);
        assert!(format!("{:#}", prompts(table("all")).unwrap_err()).contains("rename it"));
    }
}
