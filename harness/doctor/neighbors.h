#pragma once

#include "data/pipeline/transport.h"

namespace bertha {

/// The first ranks of the nodes send 64 MiB around a ring of nodes: to the next node, then to the
/// one after it. Returns the bytes per second that this rank sent in the faster round, so that a
/// node next to a slow one shows its own rate; -1 on other ranks, or with one node. All ranks call
/// it.
double neighbor_rate(Transport& transport, bool is_first_of_node);

}  // namespace bertha
