"""Keys of other tools about data and models that ask for what this version lacks or does in one way only."""

from __future__ import annotations

from outlive.run.names.known.base import Known, lacking

_NOT_BUILT = "is not built in this version"

DATA: tuple[Known, ...] = (
    lacking(
        "the model's own chat template is used, and a template by name is not known here",
        """
        template chat_template chat_template_jinja tool_format agent_template
        """,
        "remove it, or put a Jinja template into a file and name that in data.chat_template",
        same=("tokenizer_default", "default"),
    ),
    lacking(
        "variables of the chat template can't be set in this version",
        "chat_template_kwargs enable_thinking preserve_thinking",
        same=(True,),
    ),
    lacking(
        "special tokens come from the tokenizer's files, and nothing is padded",
        """
        special_tokens tokens added_tokens_overrides add_tokens new_special_tokens tokenizer_pad_token stop_words
        stop_token_ids response_prefix add_special_tokens new_special_tokens_config eos_token eot_tokens resize_vocab
        init_special_tokens resize_token_embeddings_to_32x mean_resizing_embeddings shrink_embeddings
        fix_untrained_tokens tokenizer_config tokenizer_use_mistral_common reinit_weights
        """,
        "remove it; the end of a turn is found in the chat template (data.turn_end)",
    ),
    lacking("nothing is padded, so that no padding token is needed", "pad_token", same=("<pad>", "<|endoftext|>")),
    lacking(
        "each source says which of its rows are taken",
        """
        max_samples sample_count dataset_split dataset_train_split dataset_test_split dataset_config
        dataset_name_config subset
        """,
        "set limit, split and revision of a source in data.train: [{hub: org/name, split: train, limit: 1000}]",
        same=("train",),
    ),
    lacking(
        "sources are files and hub data sets, each named by itself",
        """
        dataset_dir media_dir dataset_mixture dataset_kwargs dataset_prompt_column dataset_shard_num dataset_shard_idx
        """,
        "list the sources in data.train: [{path: rows.jsonl, weight: 1.0}]",
        same=("data",),
    ),
    lacking(
        "a sample that is too long is dropped, cut at its end, or split",
        "truncation_mode",
        "set data.overlong",
        same=("keep_start",),
    ),
    lacking(
        "sources are mixed by their weights",
        "mix_strategy interleave_prob mixture_proportion mixture_strategy interleave_probs",
        "set weight of each source in data.train, data.mix_by=rows for shares of the samples, and data.pass_ends (all: "
        "a pass sees every source whole; first: it ends with the first)",
        same=("concat",),
    ),
    lacking(
        "other names of columns and roles belong to their source",
        """
        dataset_text_field target_col train_target disable_auto_column_mapping use_chat_template text_column messages
        formatting role_tag content_tag user_tag assistant_tag role_boundaries
        """,
        "map them: fields and roles of the source in data.train",
        same=("text", "messages"),
    ),
    lacking(
        "the order of samples is drawn anew each epoch from the run's seed",
        """
        shuffle_merged_datasets val_dataset_shuffle dataset_shuffle train_dataloader_shuffle shuffle_dataset shuffle
        dataloader_in_order
        """,
        same=(True,),
        off=False,
    ),
    lacking(
        "the order of samples is drawn anew each epoch from the run's seed",
        """
        disable_shuffling sample_packing_sequentially curriculum_sampling group_by_length train_sampling_strategy
        sortish_sampler shuffle_before_merging_datasets ignore_data_skip
        """,
        same=("random",),
    ),
    lacking("one seed draws everything", "data_seed", "set seed"),
    lacking(f"dropping equal rows or short ones {_NOT_BUILT}", "dataset_exact_deduplication min_sample_len"),
    lacking("rows are never cut before they are rendered", "max_packed_sequence_len max_prompt_len max_prompt_length"),
    lacking(
        "sources are prepared once, in bounded memory; data.train_while_preparing trains on the first rows meanwhile",
        """
        streaming dataset_streaming shuffle_buffer_size use_torchdata buffer_size
        streaming_multipack_buffer_size pretraining_dataset preprocess_iterable pretrain_multipack_buffer_size
        pretraining_sample_concatenation max_steps_per_epoch
        """,
        "name the source in data.train; a text row is trained on whole",
        same=(16384, 10000),
    ),
    lacking("the last step of an epoch holds what is left", "dataloader_drop_last"),
    lacking(
        "samples are packed by best fit",
        "packing_strategy",
        "set data.packing to best_fit, none or concatenate",
        same=("bfd", "ffd", "best_fit"),
    ),
    lacking("rows are always rendered and tokenised by Outlive", "skip_prepare_dataset"),
    lacking("data sets are not uploaded", "push_dataset_to_hub hf_use_auth_token"),
    lacking("padding never carries loss", "ignore_pad_token_for_loss", same=(True,), off=False),
    lacking(
        f"training on images, video or sound {_NOT_BUILT}",
        """
        image_size norm_bbox image_resize_algorithm image_max_pixels image_min_pixels image_do_pan_and_scan
        crop_to_patches video_max_pixels video_min_pixels video_fps video_maxlen use_audio_in_video
        audio_sampling_rate processor_kwargs freeze_mm_modules train_mm_proj_only vit_lr aligner_lr max_pixels
        """,
    ),
    lacking(
        "only text models are trained: there is no such part to freeze",
        """
        freeze_vision_tower freeze_multi_modal_projector freeze_vit freeze_aligner
        """,
        same=(True,),
    ),
)

MODEL: tuple[Known, ...] = (
    lacking(
        "a hub model is taken at its main revision, which the lock pins",
        "model_revision revision_of_model",
        "download that revision into a folder and name the folder in model",
        same=("main",),
    ),
    lacking(
        f"a quantised base model {_NOT_BUILT}",
        """
        load_in_4bit hqq_axis q_lora_bits llm_int8_skip_modules quantizer load_in_8bit quantization_bit
        quantization_device_map quant_config quant_bits bnb_config_kwargs gptq qat quantization
        model_quantization_config model_quantization_config_kwargs qlora_sharded_model_loading quantize_moe_experts
        nonexpert_quantization use_onebitllms nvfp4_merge_aware nvfp4_merge_aware_start_step quantize_training
        compression_training loftq_config peft_autocast_adapter_dtype dsv4_bf16_all dsv4_fp4_grouped_mode
        dsv4_fp8_lora_kernel dsv4_fp8_nonexpert_mode dsv4_shared_mlp_lora_kernel gemma4_fp8_nonexpert
        gemma4_nf4_nonexpert use_dsv4_kernels use_glm_dsa_kernels
        """,
        "remove it: LoRA on a base in bf16 is adapter.kind: lora",
    ),
    lacking(
        "it describes a quantised base, and there is none here",
        """
        quantization_method quantization_type double_quantization quant_method bnb_4bit_quant_type
        bnb_4bit_compute_dtype bnb_4bit_use_double_quant use_bnb_nested_quant
        """,
        same=(True, "bnb", "bitsandbytes", "nf4", "fp4"),
    ),
    lacking(
        "the model is trained with the config that it was made with",
        """
        model_config model_kwargs model_init_kwargs rope_scaling base_model_config cls_model_config shift_attn
        mixture_of_depths scaling_softmax scaling_softmax_factor scaling_softmax_bias config_overrides problem_type
        init_strategy use_pose pose_split_on_token_ids pose_max_context_len pose_num_chunks
        """,
        "write the change into config.json of a folder of the model",
    ),
    lacking(
        "the tokenizer is the model's own, and goes with it into every checkpoint",
        "tokenizer tokenizer_name tokenizer_name_or_path tokenizer_path",
        "put the tokenizer's files into the folder of the model",
    ),
    lacking("a model is loaded with its weights", "load_pretrained_weights", same=(True,), off=False),
    lacking(
        "a fresh model is named with its config", "train_from_scratch", "set model: {init: {config: …, tokenizer: …}}"
    ),
    lacking(
        f"going on from an adapter {_NOT_BUILT}",
        """
        adapter_name_or_path adapter_model adapter_folder lora_model_dir create_new_adapter peft peft_config
        resume_from_adapter
        """,
        "merge it into its base and name the merged folder in model; a run of Outlive goes on with --resume",
    ),
    lacking(
        f"this option of adapters {_NOT_BUILT}",
        """
        additional_target adalora_beta1 adalora_beta2 adalora_deltaT adalora_init_r adalora_orth_reg_weight
        adalora_target_r adalora_tfinal adalora_tinit adapter_act adapter_length boft_block_num boft_block_size
        boft_dropout boft_n_butterfly_factor fourier_n_frequency fourier_scaling lora_ga_batch_size lora_ga_direction
        lora_ga_iters lora_ga_max_length lora_ga_scale lora_ga_stable_gamma reft_args reft_intervention_type
        reft_layer_key reft_layers reft_rank vera_d_initial vera_dropout vera_projection_prng_key vera_rank
        lora_exclude_modules qalora_group_size runtime_config megatron_core lora_dtype adapter_trainable
        lora_modules_to_save modules_to_save lora_target_parameters target_parameters target_regex exclude_modules
        rank_pattern alpha_pattern lora_rank_pattern lora_alpha_pattern layers_to_transform layers_pattern
        peft_layers_to_transform peft_layers_pattern layer_replication peft_layer_replication trainable_token_indices
        peft_trainable_token_indices bias lora_bias module_dropout megatron_config eva_config corda_config
        lora_ga_config velora_config alora_invocation_tokens use_qalora monteclora_config arrow_config kasa_config
        use_bdlora ensure_weight_tying peft_ensure_weight_tying oft_rank oft_block_size oft_target use_mora mora
        mora_type apply_lora_to_mlp apply_lora_to_output
        """,
        "remove it; adapter.targets lists the layers that get one",
    ),
    lacking(
        "LoRA's matrices start as in its paper: B at 0",
        """
        init_lora_weights peft_init_lora_weights lora_init_weights init_weights pissa_iter pissa_convert
        """,
        same=(True, "default"),
        off=False,
    ),
    lacking(
        "either all weights are trained, or an adapter beside them",
        """
        freeze_trainable_layers freeze_parameters freeze_parameters_ratio freeze_parameters_regex trainable_parameters
        trainable_parameters_regex freeze_llm freeze_layers llamapro_num_groups llamapro_num_new_blocks
        lisa_activated_layers freeze_trainable_modules freeze_extra_modules unfrozen_parameters use_llama_pro
        freeze_language_model spectrum_top_fraction spectrum_model_name lisa_n_layers lisa_step_interval
        lisa_layers_attribute relora relora_prune_ratio relora_prune_method relora_cpu_offload jagged_restart_steps
        jagged_restart_warmup_steps jagged_restart_anneal_steps
        """,
        "list the layers of an adapter in adapter.targets",
    ),
    lacking(
        "all weights are trained where the adapter section is absent", "full_finetuning", "remove adapter", (True,)
    ),
    lacking(
        f"this framework as an engine {_NOT_BUILT}",
        """
        use_unsloth external_plugins custom_register_path custom_dataset_info enable_npu_model_patch tuner_backend
        use_swift_lora use_mca use_kt kt_weight_path kt_expert_checkpoint_path kt_non_expert_weight_path
        kt_use_lora_experts kt_lora_expert_num kt_lora_expert_intermediate_size kt_config kt_cpu_activation
        use_hyper_parallel hyper_parallel_args plugins trainer_cls callbacks hatchery backend
        """,
        "remove it: Outlive's own loop trains",
    ),
)
