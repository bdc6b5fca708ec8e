//! Members of consumer groups: the clients of a member, the thread that owns a consumer, its partitions and its offset commits.
mod context;
mod group_join;
mod group_member;
mod group_shape;
mod member_client;
mod member_request;
mod member_thread;
mod offset_commits;
mod partition_buffer;
mod poll_callers;
mod unread_gap;
