//! The arguments of the store's scripts.

/// The ARGV values of a script, in the order in which they are added.
#[derive(Default)]
pub(crate) struct ScriptArguments(pub(crate) Vec<Vec<u8>>);

impl ScriptArguments {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn text(mut self, text: impl AsRef<str>) -> Self {
        self.0.push(text.as_ref().as_bytes().to_vec());
        self
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.push(bytes.to_vec());
        self
    }

    pub(crate) fn number(self, number: impl std::fmt::Display) -> Self {
        self.text(number.to_string())
    }
}
