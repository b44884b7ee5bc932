// How a long job tells how far it is.
#pragma once

#include <functional>
#include <string>

namespace dart {

// Called several times a second with the stage, what is done and what there is to do (in the same
// unit, whichever). May throw to stop the job.
using Progress = std::function<void(const std::string& stage, double done, double total)>;

}  // namespace dart
