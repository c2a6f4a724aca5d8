// Compiles only where the declarations are the known ones: an overload with these types must exist.
#include "signatures.h"

AcceptFn * const accept_is_known = &common_sampler_sample_and_accept_n;
AcceptRejectionFn * const rejection_is_known = &common_sampler_sample_and_accept_n_rejection;
SampleFn * const sample_is_known = &common_sampler_sample;
InitFn * const init_is_known = &common_sampler_init;
FreeFn * const free_is_known = &common_sampler_free;
DecodeFn * const decode_is_known = &llama_decode;
ProcessFn * const process_is_known = &llama_process;

static_assert(sizeof(llama_token) == 4, "token ids are 32 bits");
static float temperature(const common_params_sampling & params) { return params.temp; }

#ifndef LINKED
// try_compile links: the functions are those of the engine
std::vector<llama_token> common_sampler_sample_and_accept_n(common_sampler *, llama_context *, const std::vector<int> &, const llama_tokens &, bool) { return {}; }
std::vector<llama_token> common_sampler_sample_and_accept_n_rejection(common_sampler *, llama_context *, const std::vector<int> &, const llama_tokens &, const std::vector<std::vector<llama_token_data>> &, bool) { return {}; }
llama_token common_sampler_sample(common_sampler *, llama_context *, int, bool) { return 0; }
common_sampler * common_sampler_init(const llama_model *, common_params_sampling &) { return nullptr; }
void common_sampler_free(common_sampler *) {}
int32_t llama_decode(llama_context *, llama_batch) { return 0; }
int32_t llama_process(llama_context *, llama_process_type, llama_batch_ext *) { return 0; }
#endif

int main() {
    return accept_is_known && rejection_is_known && sample_is_known && init_is_known && free_is_known && decode_is_known &&
                   process_is_known && (void *) &temperature != nullptr ? 0 : 1;
}
