#pragma once

#include <string>
#include <vector>

#include "harness/comm/world.h"

namespace bertha {

/// What every rank says, in rank order. All ranks call it.
std::vector<std::string> gather_texts(World& world, const std::string& mine);

/// Equal for processes under one kernel, also in different containers; host names need not be.
std::string machine_name();

}  // namespace bertha
