//! Consumption: consumer groups on the topic log, and the inbox.
pub(crate) mod group_member;
pub(crate) mod group_offsets;
pub(crate) mod groups;
pub(crate) mod inbox;
pub(crate) mod joined_groups;
