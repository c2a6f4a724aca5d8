//! Opens a model: its files, its family and its sizes, before any weight is read.

use std::path::Path;
use std::thread::{self, JoinHandle};

use crate::error::clean;
use crate::files::{ConfigJson, Folder, GgufFile, ModelFiles, SideFiles};
use crate::interfaces::{Family, FamilyConfig};
use crate::load::{gguf_kind::OtherGguf, named_module};
use crate::native;
use crate::nn::TransformerConfig;
use crate::text::{template::ChatTemplate, tokenizer::TextCodec};
use crate::{ModelError, families};

/// An open model. Weights stay on disk.
pub struct OpenModel {
    /// Its files.
    pub source: ModelFiles,
    /// Its sizes.
    pub config: Box<dyn FamilyConfig>,
    family: &'static dyn Family,
}

impl OpenModel {
    /// Opens a GGUF file, or a folder as Hugging Face lays it out.
    ///
    /// # Errors
    /// When it is neither, damaged, or of a family that does not run.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        if path.is_dir() { Self::open_folder(path) } else { Self::open_gguf(GgufFile::open(path)?) }
    }

    fn open_gguf(gguf: GgufFile) -> Result<Self, ModelError> {
        if let Some(other) = OtherGguf::of(&gguf) {
            return Err(other.error(&gguf));
        }
        if let Some(kind) = named_module::kind_of_gguf(&gguf) {
            return Err(named_module::is_no_model(gguf.path(), kind));
        }
        let architecture = gguf.text("general.architecture");
        let none = || ModelError::Metadata("the key 'general.architecture' is missing".into());
        let family = families::of_gguf(architecture.ok_or_else(none)?)?;
        let config = family.read_gguf(&gguf)?;
        gguf.check_types()?;
        Ok(Self { source: ModelFiles::Gguf(gguf), config, family })
    }

    fn open_folder(path: &Path) -> Result<Self, ModelError> {
        let text = SideFiles::of(path).config()?;
        if let Some(kind) = named_module::kind_of(&text) {
            return Err(named_module::is_no_model(path, kind));
        }
        let json = ConfigJson::parse(&text)?;
        let family = families::of_json(&json)?;
        json.fp8_block()?;
        family.read_json(&json, None)?; // a wrong key is reported before a missing shard
        let folder = Folder::open(path, json, family.tensor_names())?;
        let config = family.read_json(folder.config(), Some(&folder))?;
        Ok(Self { source: ModelFiles::Folder(Box::new(folder)), config, family })
    }

    /// The sizes that every transformer has.
    #[must_use]
    pub fn transformer(&self) -> &TransformerConfig {
        self.config.transformer()
    }

    /// Source for loading a whole target on the native kernels.
    #[must_use]
    pub fn parts(&self) -> native::Source<'_> {
        (&self.source, self.transformer(), self.config.plan())
    }

    /// Text to tokens and back.
    ///
    /// # Errors
    /// When there is no tokenizer, or one of a kind that is not supported.
    pub fn codec(&self) -> Result<TextCodec, ModelError> {
        match &self.source {
            ModelFiles::Gguf(gguf) => TextCodec::from_gguf(gguf),
            ModelFiles::Folder(folder) => TextCodec::from_folder(folder.side_files(), self.family.always_begins()),
        }
    }

    /// Metadata and files that were ignored or had to be guessed, a sentence each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        match &self.source {
            ModelFiles::Gguf(gguf) => TextCodec::guess(gguf).into_iter().collect(),
            ModelFiles::Folder(folder) => folder.warning().into_iter().chain(folder.adapter_warning()).collect(),
        }
    }

    /// The chat template, if there is one.
    ///
    /// # Errors
    /// When it cannot be compiled.
    pub fn template(&self, codec: &TextCodec) -> Result<Option<ChatTemplate>, ModelError> {
        self.compile_template(codec, None).finish()
    }

    pub(super) fn template_source(&self) -> Result<Option<String>, ModelError> {
        match &self.source {
            ModelFiles::Gguf(gguf) => Ok(gguf.text("tokenizer.chat_template").map(str::to_owned)),
            ModelFiles::Folder(folder) => folder.side_files().chat_template(),
        }
    }

    /// Starts to compile the chat template in a thread while weights are read.
    #[must_use]
    pub fn compile_template(&self, codec: &TextCodec, think: Option<bool>) -> CompilingTemplate {
        let source = self.template_source();
        let (bos, eos) = (codec.bos_name(), codec.eos_name());
        let new = move |source: String| ChatTemplate::new(&source, bos, eos).map(|template| template.thinking(think));
        CompilingTemplate(source.map(|source| source.map(|source| Compiling::start(new, source))))
    }
}

/// A chat template that is being compiled, `None` if the model has none, or why its file cannot be read.
pub struct CompilingTemplate(Result<Option<Compiling>, ModelError>);

enum Compiling {
    /// By a thread.
    There(JoinHandle<Result<ChatTemplate, ModelError>>),
    /// Done here, because the system starts no thread.
    Here(Box<Result<ChatTemplate, ModelError>>),
}

impl Compiling {
    fn start(
        new: impl FnOnce(String) -> Result<ChatTemplate, ModelError> + Clone + Send + 'static,
        source: String,
    ) -> Self {
        let (compile, text) = (new.clone(), source.clone());
        match thread::Builder::new().name("template".into()).spawn(move || compile(text)) {
            Ok(thread) => Self::There(thread),
            Err(_) => Self::Here(Box::new(new(source))),
        }
    }

    fn finish(self) -> Result<ChatTemplate, ModelError> {
        match self {
            Self::There(thread) => {
                thread.join().map_err(|_| ModelError::Template("the thread that compiles it ended early".into()))?
            }
            Self::Here(done) => *done,
        }
    }
}

impl CompilingTemplate {
    fn finish(self) -> Result<Option<ChatTemplate>, ModelError> {
        self.0?.map(Compiling::finish).transpose()
    }

    /// Waits for the template. Returns it, or why it does not run: a model is useful without one.
    ///
    /// # Errors
    /// If a file cannot be read; never for a mistake in the template.
    pub fn finish_or_why(self) -> Result<(Option<ChatTemplate>, Option<String>), ModelError> {
        match self.finish() {
            Ok(template) => Ok((template, None)),
            Err(ModelError::Template(why)) => Ok((None, Some(clean(&why)))),
            Err(error) => Err(error),
        }
    }
}
