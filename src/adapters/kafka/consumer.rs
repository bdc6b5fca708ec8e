//! Members of consumer groups: the thread that owns a consumer, its partitions and its offset commits.
mod context;
mod group_member;
mod member_request;
mod member_thread;
mod offset_commits;
mod partition_buffer;
mod unread_gap;
