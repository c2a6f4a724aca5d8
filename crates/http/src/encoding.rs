//! Answers that a server compresses although no compression was asked for.

use std::io::Read;

use flate2::read::{MultiGzDecoder, ZlibDecoder};
use ureq::Body;
use ureq::http::Response;

use super::HttpError;
use super::client::Client;

impl Client {
    /// The body of an answer, decompressed.
    ///
    /// # Errors
    /// When it is compressed in a way that is not understood here.
    pub(super) fn body(&self, response: Response<Body>) -> Result<Box<dyn Read + Send>, HttpError> {
        let encoding = response.headers().get("content-encoding").and_then(|name| name.to_str().ok());
        let encoding = encoding.unwrap_or_default().trim().to_ascii_lowercase();
        let reader = response.into_body().into_reader();
        match encoding.as_str() {
            "" | "identity" => Ok(Box::new(reader)),
            "gzip" | "x-gzip" => Ok(Box::new(MultiGzDecoder::new(reader))),
            "deflate" => Ok(Box::new(ZlibDecoder::new(reader))),
            _ => Err(self.refused("compresses its answer in a way that was not asked for and is not understood here")),
        }
    }
}
