#pragma once

#include "data/pipeline/transport.h"

namespace bertha {

/// The first ranks of the nodes send 64 MiB to each other, around a ring of nodes: the next, then
/// the one after it. Bytes per second that this rank sent in the faster of both rounds, so that a
/// node next to a slow one shows its own rate; -1 if it is not the first of its node, or on one
/// node. All ranks call it.
double neighbor_rate(Transport& transport, bool is_first_of_node);

}  // namespace bertha
