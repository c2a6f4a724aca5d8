// The functions of llama.cpp that are wrapped, with the types and the exported names that they have in build 11434.
#pragma once

#include "llama.h"
#include "common.h"
#include "sampling.h"

#include <vector>

using AcceptFn = std::vector<llama_token>(common_sampler *, llama_context *, const std::vector<int> &, const llama_tokens &, bool);
using AcceptRejectionFn = std::vector<llama_token>(common_sampler *, llama_context *, const std::vector<int> &,
                                                   const llama_tokens &, const std::vector<std::vector<llama_token_data>> &, bool);
using SampleFn = llama_token(common_sampler *, llama_context *, int, bool);
using InitFn = common_sampler *(const llama_model *, common_params_sampling &);
using FreeFn = void(common_sampler *);
using DecodeFn = int32_t(llama_context *, llama_batch);
using ProcessFn = int32_t(llama_context *, llama_process_type, llama_batch_ext *);

inline constexpr const char * ACCEPT = "_Z34common_sampler_sample_and_accept_nP14common_samplerP13llama_contextRKSt6vectorIiSaIiEES7_b";
inline constexpr const char * ACCEPT_REJECTION =
    "_Z44common_sampler_sample_and_accept_n_rejectionP14common_samplerP13llama_contextRKSt6vectorIiSaIiEES7_RKS3_IS3_I16llama_token_dataSaIS8_EESaISA_EEb";
inline constexpr const char * SAMPLE = "_Z21common_sampler_sampleP14common_samplerP13llama_contextib";
inline constexpr const char * INIT = "_Z19common_sampler_initPK11llama_modelR22common_params_sampling";
inline constexpr const char * FREE = "_Z19common_sampler_freeP14common_sampler";
inline constexpr const char * DECODE = "llama_decode";
inline constexpr const char * PROCESS = "llama_process";
