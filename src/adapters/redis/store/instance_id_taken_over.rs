//! The loss of the instance id to another process.

/// Another process has taken over this process's instance id: every write of this process that needs it is refused from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceIdTakenOver {
    /// `instance.id` of this process.
    pub instance: String,
    /// Another process, or the installation that replaced the one of this process when the server had lost its data.
    pub by: String,
}
